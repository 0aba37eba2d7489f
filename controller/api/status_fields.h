// The fields of a TrainJob's status.
#pragma once

#include "common/contract/training_report.h"
#include "controller/api/field.h"
#include "controller/api/status.h"
#include "controller/api/summary.h"

namespace tilewright::api {

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<ReplicaCounts> auto& counts) {
  visitor(Field{"desired", "Desired number of workers."}, counts.desired);
  visitor(Field{"active", "Number of pods that are Pending or Running."}, counts.active);
  visitor(Field{"ready", "Number of running pods whose Ready condition is true."}, counts.ready);
  visitor(Field{"succeeded", "Number of pods that exited successfully."}, counts.succeeded);
  visitor(Field{"failed", "Number of failed pods that exist, or that existed when the job ended."},
          counts.failed);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<RestartCounts> auto& restarts) {
  visitor(Field{"program",
                "Restarts after the program itself failed, limited by "
                "spec.elasticPolicy.maxRestarts."},
          restarts.program);
  visitor(
      Field{"infrastructure",
            "Restarts after an eviction, a preemption, a drain, the deletion of a pod or the loss "
            "of a node."},
      restarts.infrastructure);
  visitor(Field{"outOfMemory", "Restarts after an OOM kill."}, restarts.out_of_memory);
  visitor.computed(Field{"total", "Sum of all restarts."}, [&] { return restarts.total(); });
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Condition> auto& condition) {
  visitor(Field{.name = "type",
                .description = "Type of the condition. Types are stable.",
                .required = true},
          condition.type);
  visitor(Field{.name = "status",
                .description = "Whether the condition is true, false or unknown.",
                .required = true},
          condition.status);
  visitor(Field{.name = "reason",
                .description = "CamelCase word for why the condition has its status.",
                .keep_empty = true},
          condition.reason);
  visitor(Field{.name = "message",
                .description = "Sentence that explains the reason.",
                .keep_empty = true},
          condition.message);
  visitor(Field{"observedGeneration", "Generation of the spec that the condition describes."},
          condition.observed_generation);
  visitor(Field{"lastTransitionTime", "Time when the status of the condition last changed."},
          condition.last_transition_time);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<FailureRecord> auto& failure) {
  visitor(
      Field{"time",
            "Time when the container ended, or when the operator noticed the failure if that is "
            "unknown."},
      failure.time);
  visitor(Field{"index", "Index of the worker, from 0."}, failure.index);
  visitor(Field{"rank", "Rank of the worker, or -1 if it had none."}, failure.rank);
  visitor(Field{"pod", "Name of the pod."}, failure.pod);
  visitor(Field{"podUID", "UID of the pod."}, failure.pod_uid);
  visitor(Field{"node", "Node on which the pod ran."}, failure.node);
  visitor(
      Field{"initContainer",
            "Init container that failed, to which exitCode, signal, reason and lastLines belong. "
            "Unset if the worker itself failed."},
      failure.init_container);
  visitor(
      Field{
          "cause",
          "What caused the failure: the program, the infrastructure (eviction, preemption, loss of "
          "a node) or an OOM kill."},
      failure.cause);
  visitor(Field{"exitCode", "Exit code of the worker process. Unset if a signal terminated it."},
          failure.exit_code);
  visitor(Field{"signal", "Signal that terminated the worker process."}, failure.signal);
  visitor(
      Field{
          "reason",
          "CamelCase reason, from Kubernetes (such as OOMKilled and Evicted) or from the operator "
          "(such as NodeLost and PeerLost)."},
      failure.reason);
  visitor(Field{"step", "Last optimizer step that the job had reported, or -1 if none."},
          failure.step);
  visitor(Field{"lastLines", "Last lines of the worker's log."}, failure.last_lines);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<FailingWorker> auto& failing) {
  visitor(Field{"index", "Index of the worker."}, failing.index);
  visitor(Field{"failures", "Number of failures less than ten minutes apart."}, failing.failures);
  visitor(Field{"lastFailure", "Time of the last failure."}, failing.last_failure);
  visitor(Field{"outOfMemoryStep", "Step that the job had reported at the worker's last OOM kill."},
          failing.out_of_memory_step);
  visitor(Field{.name = "waitsGeneration",
                .description = "Generation of the spec with which a restart would repeat the "
                               "failure.",
                .omit_zero = true},
          failing.waits_generation);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<SlowWorker> auto& slow) {
  visitor(Field{"index", "Index of the worker."}, slow.index);
  visitor(Field{.name = "process",
                .description = "Index of the process in the worker, if it has several.",
                .omit_zero = true},
          slow.process);
  visitor(Field{"slowdown",
                "Time that the process takes for the same computation, divided by the median of "
                "the others."},
          slow.slowdown);
  visitor(Field{"shards",
                "Number of virtual shards that the process computes, or 0 if the training is not "
                "exact."},
          slow.shards);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Progress> auto& progress) {
  visitor(Field{"step", "Number of completed optimizer steps."}, progress.step);
  visitor(Field{"totalSteps", "Number of optimizer steps of the whole training."},
          progress.total_steps);
  visitor(Field{"epoch", "Number of completed epochs of the training data, with a fraction."},
          progress.epoch);
  visitor(Field{"loss", "Mean training loss over the global batch of the last step."},
          progress.loss);
  visitor(Field{"learningRate", "Learning rate of the last step."}, progress.learning_rate);
  visitor(Field{"examplesPerSecond", "Training examples per second of all workers."},
          progress.examples_per_second);
  visitor(Field{"tokensPerSecond", "Training tokens per second of all workers."},
          progress.tokens_per_second);
  visitor(Field{"etaSeconds", "Estimated seconds until the training ends."}, progress.eta_seconds);
  visitor(Field{"lastCheckpoint", "Directory of the last checkpoint, relative to the output."},
          progress.last_checkpoint);
  visitor(Field{"metrics", "Metrics of the last evaluation, such as eval_accuracy and eval_f1."},
          progress.metrics);
  visitor(Field{.name = "slowWorkers",
                .description = "Processes that stay slower than the others. In an exact training "
                               "their virtual shards move to the others.",
                .max_items = static_cast<std::int64_t>(training_report::kMaxSlowWorkers),
                .atomic_list = true},
          progress.slow_workers);
  visitor(Field{"updated", "Time when the workers reported these values."}, progress.updated);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Summary> auto& summary) {
  visitor(Field{"progress", "Completed and total optimizer steps."}, summary.progress);
  visitor(Field{"epoch", "Completed epochs."}, summary.epoch);
  visitor(Field{"quality", "Main metric of the evaluation, or the last training loss."},
          summary.quality);
  visitor(Field{"speed", "Training examples per second."}, summary.speed);
  visitor(Field{"eta", "Estimated time until the training ends."}, summary.eta);
  visitor(Field{"ready", "Ready and desired workers."}, summary.ready);
  visitor(Field{"message", "Why the job is not running, or how it ended."}, summary.message);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<TrainJobStatus> auto& status) {
  visitor(Field{"phase", "Current phase of the job."}, status.phase);
  visitor(Field{"observedGeneration", "Generation of the spec that the status describes."},
          status.observed_generation);
  visitor(
      Field{"startTime",
            "Time when the operator started the job, or resumed it after a suspension. Unset while "
            "the job is suspended."},
      status.start_time);
  visitor(Field{"completionTime", "Time when the job succeeded or failed."},
          status.completion_time);
  visitor(Field{"trainingCompleteTime", "Time when rank 0 reported that the output is complete."},
          status.training_complete_time);
  visitor(Field{"replicas", "Number of workers by state."}, status.replicas);
  visitor(Field{"selector", "Label selector of the worker pods, for the scale subresource."},
          status.selector);
  visitor(Field{"restarts", "Number of restarts by cause. The counts are never reset."},
          status.restarts);
  visitor(Field{.name = "conditions",
                .description =
                    "Conditions of the job: Created, Running, Restarting, Suspended, Succeeded, "
                    "Failed, and Blocked, which says why the job is not running.",
                .list_key = "type"},
          status.conditions);
  visitor(Field{.name = "failures",
                .description = "The last ten failures of workers, oldest first.",
                .max_items = static_cast<std::int64_t>(kFailureHistoryLength),
                .atomic_list = true},
          status.failures);
  visitor(Field{.name = "failingWorkers",
                .description = "Workers that have failed in the last ten minutes, or that wait for "
                               "a change of the job.",
                .max_items = static_cast<std::int64_t>(kMaxPods),
                .atomic_list = true},
          status.failing_workers);
  visitor(
      Field{.name = "countedPods",
            .description =
                "UIDs of pods whose end needs no further handling: their failure is counted, or "
                "the operator is deleting them.",
            .atomic_list = true},
      status.counted_pods);
  visitor(
      Field{.name = "succeededWorkers",
            .description = "Names of the pods of a PyTorchJob that have succeeded. They are not "
                           "created again, even if they are deleted.",
            .max_items = static_cast<std::int64_t>(kMaxPods),
            .atomic_list = true},
      status.succeeded_workers);
  visitor(Field{"progress", "Progress of the training as the workers last reported it."},
          status.progress);
  visitor(Field{.name = "nominalWorkers",
                .description = "Number of processes that determines the global batch size. It is "
                               "fixed when the job first starts.",
                .omit_zero = true},
          status.nominal_workers);
  visitor(Field{.name = "virtualShards",
                .description = "Number of virtual shards of the global batch. It is fixed when the "
                               "job first starts.",
                .omit_zero = true},
          status.virtual_shards);
  visitor(Field{.name = "rendezvousEpoch",
                .description =
                    "Highest membership epoch so far. A membership epoch is a period in which the "
                    "workers and their ranks stay the same, a rendezvous round of torchrun; the "
                    "number increases when workers join or leave.",
                .omit_zero = true},
          status.rendezvous_epoch);
  visitor(
      Field{.name = "outputDirectory",
            .description = "Output directory of a PyTorchJob's native trainer, with $(date ...) "
                           "expanded once for the job.",
            .max_length = static_cast<std::int64_t>(kMaxOutputDirectory)},
      status.output_directory);
  visitor(
      Field{.name = "instructionSet",
            .description = "Instruction set of the workers' kernels. An exact job keeps the one "
                           "of its first membership epoch.",
            .max_length = 32},
      status.instruction_set);
  visitor(Field{.name = "excludedNodes",
                .description = "Nodes that lack the instruction set. New workers avoid them.",
                .max_items = static_cast<std::int64_t>(kMaxExcludedNodes),
                .atomic_list = true},
          status.excluded_nodes);
  visitor.computed(Field{"summary", "Formatted values for the columns of kubectl get."},
                   [&] { return summarize(status); });
}

}  // namespace tilewright::api
