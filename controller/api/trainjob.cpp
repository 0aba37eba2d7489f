#include "controller/api/trainjob.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "common/contract/rdzv_conf.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "common/json/members.h"
#include "controller/api/trainer_path.h"

namespace tilewright::api {
namespace {

std::int64_t integer_flag(const TrainJob& job, std::string_view flag) {
  const std::string text = flag_value(job, flag);
  const auto number = parse_number<std::int64_t>(text);
  TW_CHECK(number, "--{}={} is not an integer in normal form", flag, text);
  return *number;
}

template <typename Enum>
std::string_view name_of(Enum value) {
  return enum_names(value)[static_cast<std::size_t>(value)];
}

}  // namespace

std::span<const std::string_view> enum_names(RestartPolicy) {
  static constexpr auto kNames =
      std::to_array<std::string_view>({"Always", "OnFailure", "Never", "ExitCode"});
  return kNames;
}
std::span<const std::string_view> enum_names(CleanPodPolicy) {
  static constexpr std::array<std::string_view, 3> kNames = {"None", "Running", "All"};
  return kNames;
}
std::span<const std::string_view> enum_names(ImagePullPolicy) {
  static constexpr std::array<std::string_view, 3> kNames = {"Always", "IfNotPresent", "Never"};
  return kNames;
}
std::span<const std::string_view> enum_names(Phase) {
  static constexpr std::array<std::string_view, 6> kNames = {"Pending",    "Suspended", "Running",
                                                             "Restarting", "Succeeded", "Failed"};
  return kNames;
}
std::span<const std::string_view> enum_names(ConditionStatus) {
  static constexpr std::array<std::string_view, 3> kNames = {"True", "False", "Unknown"};
  return kNames;
}
std::span<const std::string_view> enum_names(FailureCause) {
  static constexpr std::array<std::string_view, 3> kNames = {"Program", "Infrastructure",
                                                             "OutOfMemory"};
  return kNames;
}

std::string_view to_string(RestartPolicy policy) { return name_of(policy); }
std::string_view to_string(CleanPodPolicy policy) { return name_of(policy); }
std::string_view to_string(ImagePullPolicy policy) { return name_of(policy); }
std::string_view to_string(Phase phase) { return name_of(phase); }
std::string_view to_string(ConditionStatus status) { return name_of(status); }
std::string_view to_string(FailureCause cause) { return name_of(cause); }

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
  return job.spec.worker.replicas.value() * job.spec.nproc_per_node.value().number;
}

std::int64_t last_transport_port(const TrainJob& job) {
  const ProcessCount processes = job.spec.nproc_per_node.value();
  return kTransportPort + (processes.automatic ? kMaxAutomaticProcesses : processes.number) - 1;
}

std::int64_t max_workers(const TrainJob& job) {
  return job.spec.elastic_policy.max_replicas.value() * job.spec.nproc_per_node.value().number;
}

std::int64_t global_batch(const TrainJob& job) {
  return global_batch_size(integer_flag(job, "per_device_train_batch_size"), nominal_workers(job),
                           integer_flag(job, "gradient_accumulation_steps"));
}

std::int64_t virtual_shards(const TrainJob& job) {
  if (job.status.virtual_shards > 0) return job.status.virtual_shards;
  const std::int64_t requested = integer_flag(job, "virtual_shards");
  if (requested > 0) return requested;
  const std::int64_t each =
      job.spec.nproc_per_node.value().automatic ? kAutomaticProcessesWithShards : 1;
  return choose_virtual_shards(global_batch(job), max_workers(job) * each);
}

std::string task_name(const TrainJob& job) {
  if (!job.spec.trainer.task.empty()) return job.spec.trainer.task;
  return task_of_dataset(flag_value(job, "dataset_name"), flag_value(job, "dataset_config_name"))
      .task;
}

std::string describe_task(const TrainJob& job) {
  const std::string task = task_name(job);
  return task.empty() ? "own files" : task;
}

bool has_own_files(const TrainJob& job) {
  return std::ranges::any_of(kOwnFileFlags,
                             [&](std::string_view flag) { return !flag_value(job, flag).empty(); });
}

std::vector<std::string> names_on_hub(const TrainJob& job) {
  std::vector<std::string> names;
  const auto add = [&](const char* kind, const std::string& name) {
    if (!name.empty() && !is_trainer_path(name)) names.push_back(fmt::format("{} {}", kind, name));
  };
  add("model", job.spec.trainer.model);
  add("config of", flag_value(job, "config_name"));
  add("tokenizer of", flag_value(job, "tokenizer_name"));
  add("data set", flag_value(job, "dataset_name"));
  if (job.spec.trainer.data.empty() && flag_value(job, "dataset_name").empty() &&
      !has_own_files(job)) {
    add("data set of", task_name(job));
  }
  return names;
}

bool is_exact(const TrainJob& job) {
  return flag_value(job, "exact") == "true" && flag_value(job, "gemm_backend") == "native";
}

RdzvConf rdzv_conf(const TrainJob& job) {
  RdzvConf conf;
  for (const RdzvSetting& setting : job.spec.elastic_policy.rdzv_conf) {
    (void)set_rdzv_conf(conf, setting.key, setting.value);
  }
  if (!check(conf).ok()) conf.keep_alive_interval = conf.keep_alive_max_attempt = std::nullopt;
  return conf;
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
