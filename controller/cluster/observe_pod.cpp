#include "controller/cluster/observe_pod.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "common/base/exit_codes.h"
#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "common/json/members.h"
#include "common/json/timestamp.h"
#include "controller/api/pytorchjob.h"
#include "controller/cluster/diagnose.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;
using policy::Worker;
using policy::WorkerPhase;

// nullopt if `value` is not an integer from `least` to `most`.
std::optional<int> bounded_integer(const json& value, std::int64_t least, std::int64_t most) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) return std::nullopt;
  return static_cast<int>(number);
}

std::optional<WallTime> timestamp_member(const json& object, const char* name) {
  return parse_timestamp(string_member(object, name));
}

WorkerPhase phase_of(const std::string& phase) {
  if (phase == "Running") return WorkerPhase::kRunning;
  if (phase == "Succeeded") return WorkerPhase::kSucceeded;
  if (phase == "Failed") return WorkerPhase::kFailed;
  return WorkerPhase::kPending;  // also for Unknown, which gives no container state
}

void take_reason(const json& from, Worker& worker) {
  worker.reason = string_member(from, "reason");
  worker.message = string_member(from, "message");
}

void read_container_state(const json& state, Worker& worker) {
  const json& waiting = member(state, "waiting");
  const json& running = member(state, "running");
  const json& terminated = member(state, "terminated");
  if (!waiting.empty()) take_reason(waiting, worker);
  if (!running.empty()) worker.started = timestamp_member(running, "startedAt");
  if (terminated.empty()) return;
  const json& code = member(terminated, "exitCode");
  const json& signal = member(terminated, "signal");
  worker.exit_code = bounded_integer(code, 0, std::numeric_limits<std::int32_t>::max());
  if (const auto number = bounded_integer(signal, 1, kMaxSignal)) {
    worker.exit_code = kSignalExitCodeBase + *number;
  }
  worker.started = timestamp_member(terminated, "startedAt");
  worker.finished = timestamp_member(terminated, "finishedAt");
  worker.reason = string_member(terminated, "reason");
  // The end of the log, because of terminationMessagePolicy FallbackToLogsOnError.
  worker.last_lines = string_member(terminated, "message");
}

// null if none failed. An init container that fails ends its pod, so it is the last one that has
// started; sidecars that were killed with it come before.
const json& find_failed_init_container(const json& status) {
  static const json kNone;
  const json& all = member(status, "initContainerStatuses");
  if (!all.is_array()) return kNone;
  const auto failed = std::find_if(all.rbegin(), all.rend(), [](const json& container) {
    const json& code = member(member(member(container, "state"), "terminated"), "exitCode");
    return code.is_number_integer() && code != 0;
  });
  return failed == all.rend() ? kNone : *failed;
}

// True if a container other than the worker runs. Sidecars among the init containers end with the
// worker.
bool other_containers_run(const json& status, const char* worker_container) {
  const json& all = member(status, "containerStatuses");
  return all.is_array() && std::ranges::any_of(all, [&](const json& container) {
           return string_member(container, "name") != worker_container &&
                  member(member(container, "state"), "terminated").is_null();
         });
}

// The container that trains.
const char* container_of_owner(const json& pod) {
  for (const json& owner : member(member(pod, "metadata"), "ownerReferences")) {
    if (string_member(owner, "kind") == kPyTorchJobKind) return api::kPyTorchContainer;
  }
  return kWorkerContainer;
}

void read_metadata(const json& metadata, Worker& worker) {
  const json& pod_annotations = member(metadata, "annotations");
  worker.generation =
      parse_number<std::int64_t>(string_member(pod_annotations, annotations::kJobGeneration));
  worker.key_id = string_member(pod_annotations, annotations::kKeyId);
  worker.name = string_member(metadata, "name");
  worker.uid = string_member(metadata, "uid");
  worker.created = timestamp_member(metadata, "creationTimestamp");
  worker.terminating = member(metadata, "deletionTimestamp").is_string();
  // deletionTimestamp includes the grace period.
  worker.deletion_deadline = timestamp_member(metadata, "deletionTimestamp");
}

// Needs the phase of the pod, and changes it to that of the worker's container.
void read_containers(const json& status, const char* container, Worker& worker) {
  const json& state =
      member(element_with(member(status, "containerStatuses"), "name", container), "state");
  const json& terminated = member(state, "terminated");
  const bool others_run =
      worker.phase == WorkerPhase::kRunning && other_containers_run(status, container);
  // A kubelet that stops a pod says so only with the pod's phase. The exit code alone means nothing
  // if the program is any, because many exit with 0 on SIGTERM.
  if (worker.phase == WorkerPhase::kRunning && !terminated.is_null() &&
      container == std::string_view(api::kPyTorchContainer) && !others_run) {
    worker.started = timestamp_member(terminated, "startedAt");
    return;
  }
  read_container_state(state, worker);
  if (worker.phase == WorkerPhase::kFailed && !worker.exit_code) {
    if (const json& failed = find_failed_init_container(status); !failed.is_null()) {
      worker.init_container = string_member(failed, "name");
      read_container_state(member(failed, "state"), worker);
    }
  }
  // The pod's phase depends on its other containers too, and a kubelet reports Running for a moment
  // after its only container has ended.
  if (worker.phase != WorkerPhase::kPending && worker.exit_code) {
    worker.pod_still_running = others_run;
    worker.phase = *worker.exit_code == 0 ? WorkerPhase::kSucceeded : WorkerPhase::kFailed;
  }
}

void read_scheduling(const json& condition, Worker& worker) {
  const std::string scheduled = string_member(condition, "status");
  if (scheduled == "True") {
    worker.scheduled = timestamp_member(condition, "lastTransitionTime");
  } else if (scheduled == "False" && worker.phase == WorkerPhase::kPending) {
    take_reason(condition, worker);
  }
}

// The pod's reason explains its container's end, except if the container was OOM-killed.
void read_reason_of_pod(const json& status, Worker& worker) {
  if (worker.reason == kOomKilled) return;
  const json& disruption = element_with(member(status, "conditions"), "type", "DisruptionTarget");
  if (!string_member(status, "reason").empty()) {
    take_reason(status, worker);
  } else if (string_member(disruption, "status") == "True") {
    take_reason(disruption, worker);
  }
}

}  // namespace

std::optional<Worker> worker_of_pod(const json& pod) {
  const json& metadata = member(pod, "metadata");
  const json& status = member(pod, "status");
  const json& conditions = member(status, "conditions");
  const auto index =
      parse_number<int>(string_member(member(metadata, "labels"), labels::kWorkerIndex));
  if (!index) return std::nullopt;
  Worker worker;
  worker.index = *index;
  read_metadata(metadata, worker);
  worker.node = string_member(member(pod, "spec"), "nodeName");
  worker.phase = phase_of(string_member(status, "phase"));
  worker.ready = string_member(element_with(conditions, "type", "Ready"), "status") == "True";
  read_containers(status, container_of_owner(pod), worker);
  read_scheduling(element_with(conditions, "type", "PodScheduled"), worker);
  read_reason_of_pod(status, worker);
  worker.failure_cause = diagnose_failure(worker.reason);
  if (worker.phase == WorkerPhase::kPending) {
    worker.start_problem = diagnose_start(worker.reason, worker.message);
  }
  return worker;
}

}  // namespace tilewright::cluster
