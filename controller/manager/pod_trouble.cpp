#include "controller/manager/pod_trouble.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/text.h"
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

// The first name in quotes.
std::string volume_in(const std::string& note) {
  return text_between(note, "\"", "\"").value_or("");
}

// The kubelet's word, every two minutes, that it is still waiting for a volume: true of every
// cause.
bool is_waiting(const std::string& note) {
  return note.find("Unable to attach or mount volumes") != std::string::npos;
}

// `attached`: when each volume last was, by the name that stands in quotes.
bool is_over(const PodTrouble& trouble, const std::string& when,
             const std::map<std::string, std::string>& attached) {
  if (trouble.reason != "FailedAttachVolume") return false;
  const auto since = attached.find(volume_in(trouble.message));
  // Times may be whole seconds: of one second the success is the later.
  return since != attached.end() && since->second >= when;
}

}  // namespace

std::optional<PodTrouble> trouble_in(const std::vector<json>& events) {
  std::map<std::string, std::string> attached;
  for (const json& event : events) {
    if (text_member(event, "reason") != "SuccessfulAttachVolume") continue;
    std::string& when = attached[volume_in(text_member(event, "note"))];
    when = std::max(when, last_told(event));
  }
  // A cause before the waiting for it, then the newest.
  using Weight = std::pair<bool, std::string>;
  std::optional<std::pair<Weight, PodTrouble>> gravest;
  for (const json& event : events) {
    PodTrouble trouble{text_member(event, "reason"), text_member(event, "note")};
    if (std::ranges::find(kReasons, trouble.reason) == kReasons.end()) continue;
    Weight weight{!is_waiting(trouble.message), last_told(event)};
    if (is_over(trouble, weight.second, attached)) continue;
    if (gravest && gravest->first >= weight) continue;
    gravest.emplace(std::move(weight), std::move(trouble));
  }
  if (!gravest) return std::nullopt;
  return gravest->second;
}

kube::ApiResult<std::optional<PodTrouble>> ask_for_trouble(kube::Client& client,
                                                           const std::string& namespace_name,
                                                           const std::string& pod_uid,
                                                           const net::Wait& wait) {
  const auto events = client.list_all(kube::resource::events(),
                                      {namespace_name, "", "regarding.uid=" + pod_uid}, wait);
  if (!events) return events.error();
  return trouble_in(*events);
}

}  // namespace tilewright::manager
