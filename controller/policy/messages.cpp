#include "controller/policy/messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "common/base/strings.h"
#include "common/contract/training_report.h"
#include "common/json/timestamp.h"

namespace tilewright::policy {
namespace {

std::string_view signal_name(std::int64_t number) {
  switch (number) {
    case 2:
      return "SIGINT";
    case 4:
      return "SIGILL";
    case 6:
      return "SIGABRT";
    case 7:
      return "SIGBUS";
    case 8:
      return "SIGFPE";
    case 9:
      return "SIGKILL";
    case 11:
      return "SIGSEGV";
    case 15:
      return "SIGTERM";
    default:
      return "";
  }
}

std::string format_resources(const std::map<std::string, api::Quantity>& amounts) {
  std::vector<std::string> parts;
  parts.reserve(amounts.size());
  for (const auto& [name, amount] : amounts) {
    parts.push_back(fmt::format("{} {}", name, amount.text));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

constexpr const char* kNoStepSinceOom = ", and no step was completed since its previous OOM kill";

Message volume_on_other_node(const Worker& worker, const Worker* holder, const FieldNames& fields) {
  const StartProblem& problem = *worker.start_problem;
  const std::string claim = problem.claims.size() == 1
                                ? "PersistentVolumeClaim " + problem.claims.front()
                                : fmt::format("one of the PersistentVolumeClaims {} (volume {})",
                                              fmt::join(problem.claims, ", "), problem.volume);
  const std::string limit = claim + " can be attached to only one node, and ";
  if (holder != nullptr) {
    return {
        "ClaimInUse",
        fmt::format("{}{} uses it on {}; set {} or {} so that all workers run on one node; {} is "
                    "then recreated",
                    limit, holder->name, holder->node, fields.node_selector, fields.affinity,
                    worker.name)};
  }
  const std::string user = problem.pods.empty() ? "it is still attached to another node"
                                                : fmt::format("pods on another node use it ({})",
                                                              fmt::join(problem.pods, ", "));
  return {"ClaimInUse",
          fmt::format("{}{}; {} starts when the volume is detached", limit, user, worker.name)};
}

// The runtime's message for the middle of a sentence: the scheduler's messages end with a full
// stop.
std::string detail_of(const Worker& worker) {
  if (worker.message.empty()) return "";
  std::string_view text = worker.message;
  if (text.ends_with('.')) text.remove_suffix(1);
  return fmt::format(": {}", text);
}

Message not_starting(const api::TrainJob& job, const Worker& worker, const Worker* holder,
                     const FieldNames& fields) {
  const std::string& name = worker.name;
  const std::string detail = detail_of(worker);
  switch (worker.start_problem->cause) {
    case StartProblemCause::kUnschedulable:
      return {worker.reason,
              fmt::format("no node can run {}{}; the scheduler keeps retrying", name, detail)};
    case StartProblemCause::kSchedulingGated:
      return {worker.reason, fmt::format("{} waits for its scheduling gates to be removed", name)};
    case StartProblemCause::kClaimNotFound:
      return {"ClaimNotFound",
              fmt::format("PersistentVolumeClaim {} does not exist in this namespace; workers "
                          "start when it is created",
                          fmt::join(worker.start_problem->claims, ", "))};
    case StartProblemCause::kClaimUsedByPod:
      return {"ClaimInUse",
              fmt::format("another pod uses a PersistentVolumeClaim of {} that has access mode "
                          "ReadWriteOncePod; the worker is scheduled when that pod is gone",
                          name)};
    case StartProblemCause::kVolumeOnOtherNode:
      return volume_on_other_node(worker, holder, fields);
    case StartProblemCause::kVolumeNotAttached:
      return {worker.reason,
              fmt::format("a volume of {} cannot be attached to its node{}; Kubernetes keeps "
                          "retrying",
                          name, detail)};
    case StartProblemCause::kImageNotAvailable:
      // One reason and one sentence for ErrImagePull and ImagePullBackOff: a kubelet reports them
      // in turn, with different details.
      return {"ImageNotAvailable",
              fmt::format("the image {} of {} cannot be pulled; the kubelet keeps retrying",
                          job.spec.worker.image, name)};
    case StartProblemCause::kContainerNotStarted:
      break;
  }
  return {worker.reason,
          fmt::format("{} cannot start{}; the kubelet keeps retrying", name, detail)};
}

struct BlockedMessage {
  const api::TrainJob& job;
  const JobTraits& traits;

  Message operator()(const blocked::InvalidSpec& cause) const {
    return {"InvalidSpec", cause.error + "; fix the spec to resume"};
  }
  Message operator()(const blocked::OutOfMemory& cause) const {
    const std::string failure = cause.failure
                                    ? describe_failure(job, *cause.failure)
                                    : worker_name(job, traits, cause.index) + " was OOM-killed";
    const bool init_container = cause.failure && !cause.failure->init_container.empty();
    return {kOutOfMemoryReason,
            failure + kNoStepSinceOom +
                fmt::format("; raise {} to restart the worker",
                            init_container ? "the memory limit of the init container"
                                           : traits.fields.memory)};
  }
  Message operator()(const blocked::CheckpointMissing& cause) const {
    const std::string what = cause.failure ? describe_failure(job, *cause.failure)
                                           : worker_name(job, traits, cause.index);
    return {
        kCheckpointMissingReason,
        what +
            "; restore the output directory, then suspend and resume the job; or delete the job "
            "and create it again to start over"};
  }
  Message operator()(const blocked::Rejected& cause) const {
    const auto message = [&](const char* reason, const char* what) {
      return Message{
          reason, fmt::format("{}{}; the operator keeps retrying", what, cause.rejection.message)};
    };
    switch (cause.rejection.cause) {
      case RejectionCause::kQuotaExceeded:
        return message("QuotaExceeded", "the namespace's quota is exceeded: ");
      case RejectionCause::kForbidden:
        return message(
            "Forbidden",
            "the API server does not allow the operator to write an object of the job: ");
      case RejectionCause::kNameTaken:
        return message("NameTaken", "an object of the job cannot be created: ");
      case RejectionCause::kCrdMissing:
        return message("CrdMissing", "an object of the job cannot be written: ");
      case RejectionCause::kInternalError:
        return message(event_reason::kInternalError, "a bug in the operator stops the job: ");
      case RejectionCause::kInvalid:
        break;
    }
    return message("Rejected", "the API server rejects an object of the job: ");
  }
  Message operator()(const blocked::NoMatchingNode& cause) const {
    std::vector<std::string> labels;
    for (const auto& [name, value] : job.spec.worker.node_selector) {
      labels.push_back(fmt::format("{}={}", name, value));
    }
    return {"NoMatchingNode",
            fmt::format("0/{} nodes match {} ({}); workers start when a node has these labels",
                        cause.nodes, traits.fields.node_selector, fmt::join(labels, ", "))};
  }
  Message operator()(const blocked::NodesCordoned&) const {
    return {"NodesCordoned",
            "every node that could run a worker is cordoned; workers start when one is uncordoned"};
  }
  Message operator()(const blocked::LargerThanAnyNode& cause) const {
    return {
        "LargerThanAnyNode",
        fmt::format("a worker requests {}, more than any single node can allocate: the eligible "
                    "nodes ({} of {}) have at most {}; lower {} or add a larger node",
                    format_resources(job.spec.worker.resources), cause.candidates, cause.nodes,
                    format_resources(cause.largest), traits.fields.resources)};
  }
  Message operator()(const blocked::NodeNotReady& cause) const {
    const Worker& worker = *cause.worker;
    return {"NodeNotReady",
            fmt::format("{} is being deleted, but node {} is not ready and cannot confirm it; the "
                        "worker is recreated when {} is ready again or when the worker's "
                        "heartbeats stop",
                        worker.name, worker.node, worker.node)};
  }
  Message operator()(const blocked::DeletionStuck& cause) const {
    const Worker& worker = *cause.worker;
    const std::string holder =
        worker.node.empty()
            ? "a finalizer blocks its deletion"
            : fmt::format(
                  "node {} has not confirmed that it stopped, or a finalizer blocks its "
                  "deletion",
                  worker.node);
    return {"DeletionHangs",
            fmt::format("{} is still terminating after its grace period: {}; the worker is "
                        "recreated when the pod is gone",
                        worker.name, holder)};
  }
  Message operator()(const blocked::NotStarting& cause) const {
    return not_starting(job, *cause.worker, cause.holder, traits.fields);
  }
  Message operator()(const blocked::BackOff& cause) const {
    return {"BackOff", fmt::format("{}; it restarts at {}", describe_failure(job, cause.failure),
                                   to_rfc3339(cause.until))};
  }
  Message operator()(const blocked::LacksInstructionSet& cause) const {
    const Worker& worker = *cause.worker;
    return {"InstructionSetMissing",
            fmt::format("{} waits: the CPU of node {} lacks the instruction set {}, which the job "
                        "has used from its first step, and no other node can run the worker; add a "
                        "node that has it, or create the job with spec.trainer.exact: false",
                        worker.name, worker.node, cause.isa)};
  }
  Message operator()(const blocked::NotJoined&) const {
    return {"NotJoined",
            "the workers are running, but not all of them have connected to the operator; check "
            "their logs"};
  }
};

// With the results of the evaluation, or else the loss of the last step. Uses the status if the
// rendezvous has no report.
std::string describe_completion(const JobState& state) {
  const auto& live = state.observed.rendezvous;
  const auto& recorded = state.observed.job.status.progress;
  const bool reported = live && live->progress.total_steps > 0;
  std::string text = "training completed";
  if (!reported && !recorded) return text;
  text +=
      fmt::format(" after {} steps", reported ? live->progress.total_steps : recorded->total_steps);
  const auto& metrics = reported ? live->progress.metrics : recorded->metrics;
  std::vector<std::string> results;
  for (const auto& [name, value] : metrics) {
    if (!name.starts_with(training_report::kEvaluationPrefix)) continue;
    results.push_back(fmt::format("{} {:.4g}", name, value));
  }
  const bool of_last_step = reported ? live->progress.step >= live->progress.total_steps
                                     : recorded->step >= recorded->total_steps;
  const std::optional<double> loss = reported ? live->progress.loss : recorded->loss;
  if (results.empty() && of_last_step && loss && std::isfinite(*loss)) {
    results.push_back(fmt::format("loss {:.4g}", *loss));
  }
  if (!results.empty()) text += fmt::format(": {}", fmt::join(results, ", "));
  return text;
}

}  // namespace

Message message_of(const api::TrainJob& job, const BlockedReason& blocked,
                   const JobTraits& traits) {
  return std::visit(BlockedMessage{job, traits}, blocked);
}

Message message_of(const JobState& state, const JobEnd& end) {
  const api::TrainJob& job = state.observed.job;
  const std::string failure = end.failure ? describe_failure(job, *end.failure) : "";
  switch (end.cause) {
    case JobEndCause::kTrainingComplete:
      break;
    case JobEndCause::kDeadlineExceeded:
      return {kDeadlineExceededReason,
              fmt::format("the job was active for longer than its activeDeadlineSeconds of {}",
                          job.spec.run_policy.active_deadline_seconds.value_or(0))};
    case JobEndCause::kRestartPolicyNever:
      return {"RestartPolicyNever", failure + ", and restartPolicy is Never"};
    case JobEndCause::kPermanentExitCode:
      return {"PermanentExitCode",
              failure + "; restartPolicy ExitCode does not retry codes below 128"};
    case JobEndCause::kRestartLimit:
      return {kBackoffLimitExceededReason,
              fmt::format("{}, and {} of {} restarts are used", failure, end.restarts,
                          job.spec.elastic_policy.max_restarts.value_or(api::kDefaultMaxRestarts))};
    case JobEndCause::kOutOfMemory:
      return {kOutOfMemoryReason,
              failure + kNoStepSinceOom + "; raise " + state.observed.traits.fields.memory};
    case JobEndCause::kCheckpointMissing:
      return {kCheckpointMissingReason,
              failure + "; restore the output directory, or start over with --replace"};
    case JobEndCause::kDiverged:
      return {failure_reason::kDiverged,
              failure +
                  "; every restart of an exact job diverges at the same step: create a job "
                  "with a lower learning_rate or a lower max_grad_norm"};
    case JobEndCause::kInvalidFlags:
      return {failure_reason::kInvalidFlags,
              failure +
                  "; a restart cannot fix this: create a job with a corrected spec.trainer or "
                  "spec.worker.env"};
    case JobEndCause::kOutputRefused:
      return {failure_reason::kOutputRefused,
              failure +
                  "; a restart cannot fix this: create a job whose spec.trainer.output is "
                  "writable and belongs to no other job, or set "
                  "spec.trainer.overwrite_output_dir: true"};
  }
  return {"TrainingComplete", describe_completion(state)};
}

std::string describe_slow_worker(const api::SlowWorker& worker) {
  const std::string name = rendezvous::to_string(
      rendezvous::WorkerProcess{static_cast<int>(worker.index), static_cast<int>(worker.process)});
  return fmt::format(
      "{} takes {:.1f} times as long as the others; {}", name, worker.slowdown,
      worker.shards == 0
          ? "virtual shards move only in exact trainings"
          : fmt::format("it computes {}",
                        counted(static_cast<std::size_t>(worker.shards), "virtual shard")));
}

std::string describe_failure(const api::TrainJob& job, const api::FailureRecord& record) {
  const std::string worker =
      record.node.empty()
          ? fmt::format("worker {} ({})", record.index, record.pod)
          : fmt::format("worker {} ({} on {})", record.index, record.pod, record.node);
  const std::string program =
      record.init_container.empty()
          ? worker
          : fmt::format("init container {} of {}", record.init_container, worker);
  if (record.cause == api::FailureCause::kOutOfMemory) {
    const auto memory = job.spec.worker.resources.find("memory");
    return memory == job.spec.worker.resources.end() || !record.init_container.empty()
               ? fmt::format("{} was OOM-killed", program)
               : fmt::format("{} was OOM-killed (memory limit {})", program, memory->second.text);
  }
  if (record.reason == failure_reason::kPeerLost) {
    return fmt::format("{} lost the connection to its peers", worker);
  }
  if (record.reason == failure_reason::kNodeLost) {
    return fmt::format("{} was lost with its node", worker);
  }
  if (record.reason == failure_reason::kDeleted) return fmt::format("{} was deleted", worker);
  if (record.reason == failure_reason::kKeyReplaced) {
    return fmt::format("{} used a job key that the operator has replaced", worker);
  }
  if (record.reason == failure_reason::kVanished) {
    return fmt::format("{} no longer exists", worker);
  }
  if (record.reason == failure_reason::kStoreLost) {
    return fmt::format(
        "the agent of {} ended because the operator, which serves its TCPStore, restarted", worker);
  }
  if (record.cause == api::FailureCause::kInfrastructure) {
    return fmt::format("{} was stopped by the cluster ({})", worker, record.reason);
  }
  if (record.signal) {
    const std::string_view name = signal_name(*record.signal);
    return fmt::format("{} was killed by signal {}{}", program, *record.signal,
                       name.empty() ? "" : fmt::format(" ({})", name));
  }
  // The last line of a program's log usually gives the cause.
  return fmt::format(
      "{} exited with code {}{}", program, record.exit_code.value_or(-1),
      record.last_lines.empty() ? "" : fmt::format(" ({})", record.last_lines.back()));
}

const char* to_string(DeletionReason reason) {
  switch (reason) {
    case DeletionReason::kFailed:
      return "its failure is recorded and the worker is recreated";
    case DeletionReason::kInstructionSetMissing:
      return "its node lacks the job's instruction set";
    case DeletionReason::kSpecChanged:
      return "it cannot start and the job has changed since it was created";
    case DeletionReason::kScaledDown:
      return "the job has fewer replicas";
    case DeletionReason::kJobFinished:
      return "the job has finished";
    case DeletionReason::kJobSuspended:
      return "the job is suspended";
  }
  return "";
}

}  // namespace tilewright::policy
