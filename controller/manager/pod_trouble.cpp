#include "controller/manager/pod_trouble.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace tilewright::manager {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kReasons{"FailedMount", "FailedAttachVolume",
                                                   "FailedCreatePodSandBox"};

std::string text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// When it was last told, in RFC 3339, which sorts as text; components fill in different members.
std::string last_told(const json& event) {
  std::string latest = text(event, "eventTime");
  latest = std::max(latest, text(event, "deprecatedLastTimestamp"));
  const auto series = event.find("series");
  if (series != event.end() && series->is_object()) {
    latest = std::max(latest, text(*series, "lastObservedTime"));
  }
  return latest;
}

}  // namespace

std::optional<PodTrouble> trouble_in(const std::vector<json>& events) {
  std::optional<std::pair<std::string, PodTrouble>> newest;
  for (const json& event : events) {
    PodTrouble trouble{text(event, "reason"), text(event, "note")};
    if (std::ranges::find(kReasons, trouble.reason) == kReasons.end()) continue;
    std::string when = last_told(event);
    if (newest && newest->first >= when) continue;
    newest.emplace(std::move(when), std::move(trouble));
  }
  if (!newest) return std::nullopt;
  return newest->second;
}

kube::ApiResult<std::optional<PodTrouble>> ask_for_trouble(kube::Client& client,
                                                           const std::string& namespace_name,
                                                           const std::string& pod_uid,
                                                           const net::Wait& wait) {
  const auto events =
      client.list_all(kube::resource::events(),
                      {namespace_name, "", "type=Warning,regarding.uid=" + pod_uid}, wait);
  if (!events) return events.error();
  return trouble_in(*events);
}

}  // namespace tilewright::manager
