#include "controller/operator/pod_start_failure.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/strings.h"
#include "common/json/members.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kReasons{"FailedMount", "FailedAttachVolume",
                                                   "FailedCreatePodSandBox"};

// Any user of the namespace can create events of a pod, as many as they like and with large
// metadata.
constexpr std::size_t kMaxEvents = 1000;
bool keep_event_field(std::string_view section, std::string_view) { return section == "series"; }

// Time of the last occurrence in RFC 3339, which sorts as a string. Components set different
// fields.
std::string last_observed_time(const json& event) {
  std::string latest = string_member(event, "eventTime");
  latest = std::max(latest, string_member(event, "deprecatedLastTimestamp"));
  return std::max(latest, string_member(member(event, "series"), "lastObservedTime"));
}

// The first name in quotes.
std::string quoted_volume_name(const std::string& note) {
  return substring_between(note, "\"", "\"").value_or("");
}

// The kubelet repeats this event every two minutes while it waits for a volume, for any cause.
bool is_waiting(const std::string& note) {
  return note.find("Unable to attach or mount volumes") != std::string::npos;
}

// `attached`: time of the last successful attach, by the quoted volume name.
bool is_resolved(const PodStartFailure& start_failure, const std::string& when,
                 const std::map<std::string, std::string>& attached) {
  if (start_failure.reason != "FailedAttachVolume") return false;
  const auto since = attached.find(quoted_volume_name(start_failure.message));
  // Times may have a resolution of one second; at equal times the success is the later event.
  return since != attached.end() && since->second >= when;
}

}  // namespace

std::optional<PodStartFailure> find_start_failure(const std::vector<json>& events) {
  std::map<std::string, std::string> attached;
  for (const json& event : events) {
    if (string_member(event, "reason") != "SuccessfulAttachVolume") continue;
    std::string& when = attached[quoted_volume_name(string_member(event, "note"))];
    when = std::max(when, last_observed_time(event));
  }
  // Prefer events that state a cause, then the newest.
  using Weight = std::pair<bool, std::string>;
  std::optional<std::pair<Weight, PodStartFailure>> most_relevant;
  for (const json& event : events) {
    PodStartFailure start_failure{string_member(event, "reason"), string_member(event, "note")};
    if (std::ranges::find(kReasons, start_failure.reason) == kReasons.end()) continue;
    Weight weight{!is_waiting(start_failure.message), last_observed_time(event)};
    if (is_resolved(start_failure, weight.second, attached)) continue;
    if (most_relevant && most_relevant->first >= weight) continue;
    most_relevant.emplace(std::move(weight), std::move(start_failure));
  }
  if (!most_relevant) return std::nullopt;
  return most_relevant->second;
}

kube::ApiResult<std::optional<PodStartFailure>> read_start_failure(
    kube::Client& client, const std::string& namespace_name, const std::string& pod_uid,
    const net::Wait& wait) {
  std::vector<json> events;
  const kube::ListSink sink{[&] { events.clear(); },
                            [&](json&& event) { events.push_back(std::move(event)); }};
  kube::ListOptions options;
  options.max_objects = kMaxEvents;
  const auto listed = client.list(
      kube::resource::events(), {namespace_name, "", "regarding.uid=" + pod_uid, keep_event_field},
      options, sink, wait);
  if (!listed) return listed.error();
  return find_start_failure(events);
}

}  // namespace tilewright::controller
