#include "controller/api/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/contract/environment.h"
#include "common/contract/pod_paths.h"
#include "common/contract/training_flags.h"

namespace tilewright::api {
namespace {

// A name on the hub stays as it is.
std::string resolve_path(const PathResolver& resolve, const std::string& text) {
  if (!is_trainer_path(text)) return text;
  const Result<TrainerPath> path = parse_trainer_path(text);
  TW_CHECK(path.ok(), "validate() accepted an invalid path: {}", path.error().message);
  return resolve(*path);
}

}  // namespace

std::vector<std::string> worker_command(const TrainJob& job, const PathResolver& resolve) {
  const ProcessCount processes = job.spec.nproc_per_node.value();
  const Trainer& trainer = job.spec.trainer;
  std::vector<std::string> words = {kWorkerProgram};
  if (processes.automatic || processes.number > 1) {
    const std::string count = processes.automatic ? "auto" : std::to_string(processes.number);
    // Without it the agent would kill its processes after torchrun's 30 s.
    const std::int64_t grace = *job.spec.worker.termination_grace_period_seconds;  // has a default
    // The operator or `up` restarts the worker, as restartPolicy and maxRestarts say.
    words.insert(words.end(), {"agent", "--nproc_per_node=" + count, "--max_restarts=0",
                               fmt::format("--shutdown_timeout={}", grace), "--"});
  }
  words.emplace_back("train");
  const auto add = [&words](std::string_view name, std::string_view value) {
    words.push_back(fmt::format("--{}={}", name, value));
  };
  const auto add_path = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) add(name, resolve_path(resolve, value));
  };
  // The name of a task is no path, so it stays as it is.
  for (const RenamedFlag& renamed : kRenamedFlags) {
    add_path(renamed.flag, trainer.*renamed.member);
  }
  for (const auto& [name, value] : trainer.flags) {
    if (name == "virtual_shards") continue;  // added below with the effective value
    const TrainingFlag* flag = find_training_flag(name);
    TW_CHECK(flag != nullptr, "there is no training flag --{}", name);
    if (!flag->reason_unused_in_job().empty()) continue;
    if (flag->volume_path) {
      add_path(name, value);
    } else {
      add(name, value);
    }
  }
  add("virtual_shards", std::to_string(virtual_shards(job)));
  add("nominal_workers", std::to_string(nominal_workers(job)));
  add("max_workers", std::to_string(max_workers(job)));
  return words;
}

Result<TrainingArguments> training_arguments(const TrainJob& job) {
  const Trainer& trainer = job.spec.trainer;
  std::vector<std::string> words;
  const auto add = [&words](std::string_view name, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("--{}={}", name, value));
  };
  for (const RenamedFlag& renamed : kRenamedFlags) add(renamed.flag, trainer.*renamed.member);
  for (const auto& [name, value] : trainer.flags) add(name, value);
  return TrainingArguments::parse(words);
}

std::vector<std::string> expand_command(std::vector<std::string> command,
                                        const Environment& variables) {
  for (std::string& word : command) word = expand(word, variables);
  return command;
}

std::vector<std::pair<std::string, std::string>> worker_environment(const TrainJob& job,
                                                                    const WorkerSetting& setting) {
  std::vector<std::pair<std::string, std::string>> list = {
      {env::kJobName, job.metadata.name},
      {env::kJobUid, job.metadata.uid},
      {env::kJobKeyFile, setting.job_key_file},
      {env::kRendezvous, setting.rendezvous},
      {env::kWorkerIndex, std::to_string(setting.index)},
  };
  if (rdzv_conf(job).tls) list.emplace_back(env::kTls, "true");
  for (const EnvVar& variable : job.spec.worker.env) {
    if (variable.value_from.is_null()) list.emplace_back(variable.name, variable.value);
  }
  return list;
}

bool sets_any(const TrainJob& job, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(job.spec.worker.env, [&](const EnvVar& variable) {
    return std::ranges::find(names, variable.name) != names.end();
  });
}

std::span<const char* const> runtime_variables() {
  static constexpr std::array kNames = {
      env::kJobName,          env::kJobUid,     env::kJobKeyFile,
      env::kRendezvous,       env::kTls,        env::kWorkerIndex,
      env::kTransportPort,    env::kMasterAddr, env::kMasterPort,
      env::kWorldSize,        env::kRank,       env::kLocalRank,
      env::kLocalWorldSize,   env::kGroupRank,  env::kGroupWorldSize,
      env::kTorchelasticRunId};
  return kNames;
}

bool is_runtime_variable(std::string_view name) {
  return std::ranges::find(runtime_variables(), name) != runtime_variables().end();
}

}  // namespace tilewright::api
