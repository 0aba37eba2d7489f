#include "controller/manager/pod_trouble.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "controller/api/json_members.h"

namespace tilewright::manager {
namespace {

using api::text_member;
using nlohmann::json;

constexpr std::array<std::string_view, 3> kReasons{"FailedMount", "FailedAttachVolume",
                                                   "FailedCreatePodSandBox"};

// When it was last told, in RFC 3339, which sorts as text; components fill in different members.
std::string last_told(const json& event) {
  std::string latest = text_member(event, "eventTime");
  latest = std::max(latest, text_member(event, "deprecatedLastTimestamp"));
  return std::max(latest, text_member(api::member(event, "series"), "lastObservedTime"));
}

}  // namespace

std::optional<PodTrouble> trouble_in(const std::vector<json>& events) {
  std::optional<std::pair<std::string, PodTrouble>> newest;
  for (const json& event : events) {
    PodTrouble trouble{text_member(event, "reason"), text_member(event, "note")};
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
