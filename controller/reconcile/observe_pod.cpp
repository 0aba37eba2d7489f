#include "controller/reconcile/observe_pod.h"

#include <charconv>
#include <string>
#include <string_view>

#include "common/contract/labels.h"
#include "controller/api/decode.h"

namespace tilewright::reconcile {
namespace {

using nlohmann::json;

// An empty object where the member is absent or of another type.
const json& member(const json& object, const char* name) {
  static const json kNothing = json::object();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// As labels and annotations have it.
template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
  Number number = 0;
  const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number);
  if (outcome.ec != std::errc() || outcome.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<WallTime> time(const json& object, const char* name) {
  return api::parse_timestamp(text(object, name));
}

const json& named(const json& list, const char* key, std::string_view name) {
  static const json kNothing = json::object();
  if (!list.is_array()) return kNothing;
  for (const json& element : list) {
    if (text(element, key) == name) return element;
  }
  return kNothing;
}

WorkerPhase phase_of(const std::string& phase) {
  if (phase == "Running") return WorkerPhase::kRunning;
  if (phase == "Succeeded") return WorkerPhase::kSucceeded;
  if (phase == "Failed") return WorkerPhase::kFailed;
  return WorkerPhase::kPending;  // and Unknown, which says nothing about the container
}

void take_container_state(const json& state, Worker& worker) {
  const json& waiting = member(state, "waiting");
  const json& running = member(state, "running");
  const json& terminated = member(state, "terminated");
  if (!waiting.empty()) {
    worker.reason = text(waiting, "reason");
    worker.message = text(waiting, "message");
  }
  if (!running.empty()) worker.started = time(running, "startedAt");
  if (terminated.empty()) return;
  const json& code = member(terminated, "exitCode");
  const json& signal = member(terminated, "signal");
  if (code.is_number_integer()) worker.exit_code = code.get<int>();
  if (signal.is_number_integer() && signal.get<int>() > 0)
    worker.exit_code = 128 + signal.get<int>();
  worker.started = time(terminated, "startedAt");
  worker.finished = time(terminated, "finishedAt");
  worker.reason = text(terminated, "reason");
  // With FallbackToLogsOnError this is the end of the log.
  worker.last_lines = text(terminated, "message");
}

}  // namespace

std::optional<Worker> worker_of_pod(const json& pod) {
  const json& metadata = member(pod, "metadata");
  const json& status = member(pod, "status");
  const auto index = whole_number<int>(text(member(metadata, "labels"), labels::kWorkerIndex));
  if (!index) return std::nullopt;
  Worker worker;
  worker.index = *index;
  worker.generation = whole_number<std::int64_t>(
      text(member(metadata, "annotations"), annotations::kJobGeneration));
  worker.name = text(metadata, "name");
  worker.uid = text(metadata, "uid");
  worker.created = time(metadata, "creationTimestamp");
  worker.terminating = member(metadata, "deletionTimestamp").is_string();
  worker.node = text(member(pod, "spec"), "nodeName");
  worker.phase = phase_of(text(status, "phase"));
  const json& conditions = member(status, "conditions");
  worker.ready = text(named(conditions, "type", "Ready"), "status") == "True";

  take_container_state(
      member(named(member(status, "containerStatuses"), "name", kWorkerContainer), "state"),
      worker);
  const json& scheduled = named(conditions, "type", "PodScheduled");
  if (worker.phase == WorkerPhase::kPending && text(scheduled, "status") == "False") {
    worker.reason = text(scheduled, "reason");
    worker.message = text(scheduled, "message");
  }
  // What happened to the pod explains what happened to its container; only the container's own
  // death of memory says more.
  const json& disruption = named(conditions, "type", "DisruptionTarget");
  if (worker.reason != "OOMKilled") {
    if (const std::string reason = text(status, "reason"); !reason.empty()) {
      worker.reason = reason;
      worker.message = text(status, "message");
    } else if (text(disruption, "status") == "True") {
      worker.reason = text(disruption, "reason");
      worker.message = text(disruption, "message");
    }
  }
  return worker;
}

}  // namespace tilewright::reconcile
