#include "controller/api/trainjob.h"

#include <charconv>

#include "common/base/check.h"
#include "common/contract/labels.h"
#include "common/contract/rdzv_conf.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "controller/api/json_members.h"

namespace tilewright::api {
namespace {

std::int64_t integer_flag(const TrainJob& job, std::string_view flag) {
  const std::string text = flag_value(job, flag);
  std::int64_t number = 0;
  const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number);
  TW_CHECK(outcome.ec == std::errc() && outcome.ptr == text.data() + text.size(),
           "--{}={} is not a whole number in normal form", flag, text);
  return number;
}

}  // namespace

std::string_view to_string(RestartPolicy policy) {
  switch (policy) {
    case RestartPolicy::kAlways:
      return "Always";
    case RestartPolicy::kOnFailure:
      return "OnFailure";
    case RestartPolicy::kNever:
      return "Never";
    case RestartPolicy::kExitCode:
      return "ExitCode";
  }
  return "";
}

std::string_view to_string(CleanPodPolicy policy) {
  switch (policy) {
    case CleanPodPolicy::kNone:
      return "None";
    case CleanPodPolicy::kRunning:
      return "Running";
    case CleanPodPolicy::kAll:
      return "All";
  }
  return "";
}

std::string_view to_string(ImagePullPolicy policy) {
  switch (policy) {
    case ImagePullPolicy::kAlways:
      return "Always";
    case ImagePullPolicy::kIfNotPresent:
      return "IfNotPresent";
    case ImagePullPolicy::kNever:
      return "Never";
  }
  return "";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kPending:
      return "Pending";
    case Phase::kSuspended:
      return "Suspended";
    case Phase::kRunning:
      return "Running";
    case Phase::kRestarting:
      return "Restarting";
    case Phase::kSucceeded:
      return "Succeeded";
    case Phase::kFailed:
      return "Failed";
  }
  return "";
}

std::string_view to_string(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::kTrue:
      return "True";
    case ConditionStatus::kFalse:
      return "False";
    case ConditionStatus::kUnknown:
      return "Unknown";
  }
  return "";
}

std::string_view to_string(FailureCause cause) {
  switch (cause) {
    case FailureCause::kProgram:
      return "Program";
    case FailureCause::kInfrastructure:
      return "Infrastructure";
    case FailureCause::kOutOfMemory:
      return "OutOfMemory";
  }
  return "";
}

const Condition* TrainJobStatus::find_condition(std::string_view type) const {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool is_read_only(const Volume& volume) {
  return member(member(volume.source, "persistentVolumeClaim"), "readOnly") == true;
}

std::int64_t nominal_workers(const TrainJob& job) {
  if (job.status.nominal_workers > 0) return job.status.nominal_workers;
  return job.spec.worker.replicas.value() * job.spec.nproc_per_node.value();
}

std::int64_t max_workers(const TrainJob& job) {
  return job.spec.elastic_policy.max_replicas.value() * job.spec.nproc_per_node.value();
}

std::int64_t global_batch(const TrainJob& job) {
  return global_batch_size(integer_flag(job, "per_device_train_batch_size"), nominal_workers(job),
                           integer_flag(job, "gradient_accumulation_steps"));
}

std::int64_t virtual_shards(const TrainJob& job) {
  if (job.status.virtual_shards > 0) return job.status.virtual_shards;
  const std::int64_t asked = integer_flag(job, "virtual_shards");
  return asked > 0 ? asked : choose_virtual_shards(global_batch(job), max_workers(job));
}

bool uses_tls(const TrainJob& job) {
  RdzvConf conf;
  for (const RdzvSetting& setting : job.spec.elastic_policy.rdzv_conf) {
    (void)set_rdzv_conf(conf, setting.key, setting.value);  // validate() says what is wrong with it
  }
  return conf.tls;
}

std::string worker_name(const TrainJob& job, std::int64_t index) {
  return job.metadata.name + kWorkerInfix + std::to_string(index);
}

std::string flag_value(const TrainJob& job, std::string_view flag) {
  const auto set = job.spec.trainer.flags.find(std::string(flag));
  if (set != job.spec.trainer.flags.end()) return set->second;
  const TrainingFlag* known = find_training_flag(flag);
  TW_CHECK(known != nullptr, "there is no training flag --{}", flag);
  return std::string(known->default_value);
}

}  // namespace tilewright::api
