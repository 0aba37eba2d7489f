#include "controller/reconcile/observe_pod.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "common/contract/labels.h"
#include "controller/api/decode.h"
#include "controller/api/json_members.h"

namespace tilewright::reconcile {
namespace {

using api::member;
using api::text_member;
using nlohmann::json;

// As labels and annotations have it.
template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
  Number number = 0;
  const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number);
  if (outcome.ec != std::errc() || outcome.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<WallTime> time(const json& object, const char* name) {
  return api::parse_timestamp(text_member(object, name));
}

const json& named(const json& list, const char* key, std::string_view name) {
  static const json kNothing;
  if (!list.is_array()) return kNothing;
  for (const json& element : list) {
    if (text_member(element, key) == name) return element;
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
    worker.reason = text_member(waiting, "reason");
    worker.message = text_member(waiting, "message");
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
  worker.reason = text_member(terminated, "reason");
  // With FallbackToLogsOnError this is the end of the log.
  worker.last_lines = text_member(terminated, "message");
}

// Of the containers beside the worker; sidecars among the init containers end with it.
bool others_run(const json& status) {
  const json& all = member(status, "containerStatuses");
  return all.is_array() && std::ranges::any_of(all, [](const json& container) {
           return text_member(container, "name") != kWorkerContainer &&
                  member(member(container, "state"), "terminated").is_null();
         });
}

}  // namespace

std::optional<Worker> worker_of_pod(const json& pod) {
  const json& metadata = member(pod, "metadata");
  const json& status = member(pod, "status");
  const auto index =
      whole_number<int>(text_member(member(metadata, "labels"), labels::kWorkerIndex));
  if (!index) return std::nullopt;
  Worker worker;
  worker.index = *index;
  worker.generation = whole_number<std::int64_t>(
      text_member(member(metadata, "annotations"), annotations::kJobGeneration));
  worker.key_id = text_member(member(metadata, "annotations"), annotations::kKeyId);
  worker.name = text_member(metadata, "name");
  worker.uid = text_member(metadata, "uid");
  worker.created = time(metadata, "creationTimestamp");
  worker.terminating = member(metadata, "deletionTimestamp").is_string();
  worker.gone_by = time(metadata, "deletionTimestamp");  // the grace period is in it
  worker.node = text_member(member(pod, "spec"), "nodeName");
  worker.phase = phase_of(text_member(status, "phase"));
  const json& conditions = member(status, "conditions");
  worker.ready = text_member(named(conditions, "type", "Ready"), "status") == "True";

  take_container_state(
      member(named(member(status, "containerStatuses"), "name", kWorkerContainer), "state"),
      worker);
  // The pod's phase hangs on the containers beside it, too; and where there are none, a kubelet
  // says Running for another moment.
  if (worker.phase != WorkerPhase::kPending && worker.exit_code) {
    worker.pod_goes_on = worker.phase == WorkerPhase::kRunning && others_run(status);
    worker.phase = *worker.exit_code == 0 ? WorkerPhase::kSucceeded : WorkerPhase::kFailed;
  }
  const json& scheduled = named(conditions, "type", "PodScheduled");
  if (worker.phase == WorkerPhase::kPending && text_member(scheduled, "status") == "False") {
    worker.reason = text_member(scheduled, "reason");
    worker.message = text_member(scheduled, "message");
  }
  // What happened to the pod explains what happened to its container; only the container's own
  // death of memory says more.
  const json& disruption = named(conditions, "type", "DisruptionTarget");
  if (worker.reason != "OOMKilled") {
    if (const std::string reason = text_member(status, "reason"); !reason.empty()) {
      worker.reason = reason;
      worker.message = text_member(status, "message");
    } else if (text_member(disruption, "status") == "True") {
      worker.reason = text_member(disruption, "reason");
      worker.message = text_member(disruption, "message");
    }
  }
  return worker;
}

}  // namespace tilewright::reconcile
