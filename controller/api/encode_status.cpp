// status as the API server is given it.
#include <fmt/format.h>

#include <array>

#include "common/base/clock.h"
#include "common/contract/reported.h"
#include "controller/api/encode.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// The one number of a task comes first: GLUE's of CoLA and STS-B, then of the others, then SQuAD's.
constexpr std::array<const char*, 5> kMainMetrics{"matthews_correlation", "pearson", "accuracy",
                                                  "f1", "exact"};

void put_time(json& object, const char* name, const Timestamp& time) {
  if (time) object[name] = to_rfc3339(*time);
}
void put_text(json& object, const char* name, const std::string& text) {
  if (!text.empty()) object[name] = text;
}
template <typename T>
void put(json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

json condition_json(const Condition& condition) {
  json object = {{"type", condition.type},
                 {"status", std::string(to_string(condition.status))},
                 {"reason", condition.reason},
                 {"message", condition.message},
                 {"observedGeneration", condition.observed_generation}};
  put_time(object, "lastTransitionTime", condition.last_transition_time);
  return object;
}

json failure_json(const FailureRecord& failure) {
  json object = {{"index", failure.index},
                 {"rank", failure.rank},
                 {"cause", std::string(to_string(failure.cause))},
                 {"step", failure.step}};
  put_time(object, "time", failure.time);
  put_text(object, "pod", failure.pod);
  put_text(object, "podUID", failure.pod_uid);
  put_text(object, "node", failure.node);
  put(object, "exitCode", failure.exit_code);
  put(object, "signal", failure.signal);
  put_text(object, "reason", failure.reason);
  if (!failure.last_lines.empty()) object["lastLines"] = failure.last_lines;
  return object;
}

json progress_json(const Progress& progress) {
  json object = {{"step", progress.step},
                 {"totalSteps", progress.total_steps},
                 {"epoch", progress.epoch},
                 {"examplesPerSecond", progress.examples_per_second},
                 {"tokensPerSecond", progress.tokens_per_second}};
  put(object, "loss", progress.loss);
  put(object, "learningRate", progress.learning_rate);
  put(object, "etaSeconds", progress.eta_seconds);
  put_text(object, "lastCheckpoint", progress.last_checkpoint);
  if (!progress.metrics.empty()) object["metrics"] = progress.metrics;
  put_time(object, "updated", progress.updated);
  return object;
}

// What tells best how good the model is: the evaluation's result once there is one.
std::string quality_of(const Progress& progress) {
  const std::map<std::string, double>& metrics = progress.metrics;
  for (const char* name : kMainMetrics) {
    const auto found = metrics.find(fmt::format("{}{}", reported::kEvaluationPrefix, name));
    if (found != metrics.end()) return fmt::format("{} {:.4f}", name, found->second);
  }
  return progress.loss ? fmt::format("loss {:.4f}", *progress.loss) : "";
}

// Why a job does not run, or how it ended.
std::string message_of(const TrainJobStatus& status) {
  for (const char* type :
       {condition::kBlocked, condition::kFailed, condition::kSucceeded, condition::kRestarting}) {
    const Condition* found = status.find_condition(type);
    if (found != nullptr && found->status == ConditionStatus::kTrue) return found->message;
  }
  return "";
}

// kubectl's columns show a field each; these join what people read together.
json summary_json(const TrainJobStatus& status) {
  json summary = json::object();
  if (status.replicas.desired > 0) {
    summary["ready"] = fmt::format("{}/{}", status.replicas.ready, status.replicas.desired);
  }
  put_text(summary, "message", message_of(status));
  if (!status.progress) return summary;
  const Progress& progress = *status.progress;
  summary["progress"] = fmt::format("{}/{}", progress.step, progress.total_steps);
  put_text(summary, "quality", quality_of(progress));
  // Of a job that is not under way neither says anything any more.
  if (status.phase != Phase::kRunning) return summary;
  summary["speed"] = fmt::format("{:.1f}/s", progress.examples_per_second);
  if (progress.eta_seconds) {
    summary["eta"] = to_words(std::chrono::seconds(*progress.eta_seconds));
  }
  return summary;
}

}  // namespace

json to_json(const TrainJobStatus& status) {
  json object = {{"phase", std::string(to_string(status.phase))},
                 {"observedGeneration", status.observed_generation},
                 {"replicas",
                  {{"desired", status.replicas.desired},
                   {"active", status.replicas.active},
                   {"ready", status.replicas.ready},
                   {"succeeded", status.replicas.succeeded},
                   {"failed", status.replicas.failed}}},
                 {"restarts",
                  {{"program", status.restarts.program},
                   {"infrastructure", status.restarts.infrastructure},
                   {"outOfMemory", status.restarts.out_of_memory},
                   // What the printer column shows.
                   {"total", status.restarts.total()}}}};
  put_time(object, "startTime", status.start_time);
  put_time(object, "completionTime", status.completion_time);
  put_time(object, "trainingCompleteTime", status.training_complete_time);
  put_text(object, "selector", status.selector);
  for (const Condition& condition : status.conditions) {
    object["conditions"].push_back(condition_json(condition));
  }
  for (const FailureRecord& failure : status.failures) {
    object["failures"].push_back(failure_json(failure));
  }
  if (!status.counted_pods.empty()) object["countedPods"] = status.counted_pods;
  if (status.progress) object["progress"] = progress_json(*status.progress);
  if (status.nominal_workers > 0) object["nominalWorkers"] = status.nominal_workers;
  if (status.virtual_shards > 0) object["virtualShards"] = status.virtual_shards;
  if (status.rendezvous_epoch > 0) object["rendezvousEpoch"] = status.rendezvous_epoch;
  if (json summary = summary_json(status); !summary.empty()) object["summary"] = std::move(summary);
  return object;
}

}  // namespace tilewright::api
