// status, which only an API server's objects have.
#include "controller/api/decode_parts.h"

namespace tilewright::api {
namespace {

void decode_condition(Fields& fields, Condition& condition) {
  fields.text("type", condition.type);
  std::optional<ConditionStatus> status;
  fields.choice("status",
                {ConditionStatus::kTrue, ConditionStatus::kFalse, ConditionStatus::kUnknown},
                status);
  condition.status = status.value_or(ConditionStatus::kUnknown);
  fields.text("reason", condition.reason);
  fields.text("message", condition.message);
  fields.integer("observedGeneration", condition.observed_generation);
  fields.timestamp("lastTransitionTime", condition.last_transition_time);
}

void decode_failure(Fields& fields, FailureRecord& failure) {
  fields.timestamp("time", failure.time);
  fields.integer("index", failure.index);
  fields.integer("rank", failure.rank);
  fields.text("pod", failure.pod);
  fields.text("podUID", failure.pod_uid);
  fields.text("node", failure.node);
  std::optional<FailureCause> cause;
  fields.choice("cause",
                {FailureCause::kProgram, FailureCause::kInfrastructure, FailureCause::kOutOfMemory},
                cause);
  failure.cause = cause.value_or(FailureCause::kProgram);
  fields.integer("exitCode", failure.exit_code);
  fields.integer("signal", failure.signal);
  fields.text("reason", failure.reason);
  fields.integer("step", failure.step);
  fields.texts("lastLines", failure.last_lines);
}

void decode_progress(Fields& fields, Progress& progress) {
  fields.integer("step", progress.step);
  fields.integer("totalSteps", progress.total_steps);
  fields.number("epoch", progress.epoch);
  fields.number("loss", progress.loss);
  fields.number("learningRate", progress.learning_rate);
  fields.number("examplesPerSecond", progress.examples_per_second);
  fields.number("tokensPerSecond", progress.tokens_per_second);
  fields.integer("etaSeconds", progress.eta_seconds);
  fields.text("lastCheckpoint", progress.last_checkpoint);
  fields.object("metrics", [&](Fields& inner) {
    for (const std::string& name : inner.rest()) inner.number(name, progress.metrics[name]);
  });
  fields.timestamp("updated", progress.updated);
}

}  // namespace

void decode_status(Fields& fields, TrainJobStatus& status) {
  std::optional<Phase> phase;
  fields.choice("phase",
                {Phase::kPending, Phase::kSuspended, Phase::kRunning, Phase::kRestarting,
                 Phase::kSucceeded, Phase::kFailed},
                phase);
  status.phase = phase.value_or(Phase::kPending);
  fields.integer("observedGeneration", status.observed_generation);
  fields.timestamp("startTime", status.start_time);
  fields.timestamp("completionTime", status.completion_time);
  fields.timestamp("trainingCompleteTime", status.training_complete_time);
  fields.object("replicas", [&](Fields& inner) {
    inner.integer("desired", status.replicas.desired);
    inner.integer("active", status.replicas.active);
    inner.integer("ready", status.replicas.ready);
    inner.integer("succeeded", status.replicas.succeeded);
    inner.integer("failed", status.replicas.failed);
  });
  fields.text("selector", status.selector);
  fields.object("restarts", [&](Fields& inner) {
    inner.integer("program", status.restarts.program);
    inner.integer("infrastructure", status.restarts.infrastructure);
    inner.integer("outOfMemory", status.restarts.out_of_memory);
    inner.ignore("total");
  });
  fields.each_object("conditions", [&](Fields& inner) {
    decode_condition(inner, status.conditions.emplace_back());
  });
  fields.each_object("failures",
                     [&](Fields& inner) { decode_failure(inner, status.failures.emplace_back()); });
  fields.texts("countedPods", status.counted_pods);
  fields.object("progress",
                [&](Fields& inner) { decode_progress(inner, status.progress.emplace()); });
  fields.integer("nominalWorkers", status.nominal_workers);
  fields.integer("virtualShards", status.virtual_shards);
  fields.integer("rendezvousEpoch", status.rendezvous_epoch);
  fields.ignore("summary");
}

}  // namespace tilewright::api
