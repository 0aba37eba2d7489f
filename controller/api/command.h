// The command line and the environment of a worker, in a pod and under `tilewright up`.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/contract/training_flags.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

using PathResolver = std::function<std::string(const TrainerPath&)>;

// tilewright-worker train --task_name=... ARGS..., or with several processes per pod
// tilewright-worker agent --nproc_per_node=N ... -- train ... . The job must be valid and have
// defaults applied. $(VAR) is not expanded: the kubelet expands it in a pod, expand_command()
// elsewhere.
std::vector<std::string> worker_command(const TrainJob& job, const PathResolver& resolve);

// A field of spec.trainer with another name than the flag that it sets.
struct RenamedFlag {
  std::string_view flag;
  std::string_view field;
  std::string Trainer::*member;
};
inline constexpr std::array<RenamedFlag, 5> kRenamedFlags = {
    {{"task_name", "task", &Trainer::task},
     {"model_name_or_path", "model", &Trainer::model},
     {"data_dir", "data", &Trainer::data},
     {"output_dir", "output", &Trainer::output},
     {"cache_dir", "cache", &Trainer::cache}}};

// The flags of the training, with paths and variables as the manifest has them. Error (kUsage): a
// value that the decoder would have refused.
Result<TrainingArguments> training_arguments(const TrainJob& job);

// Expands each argument.
std::vector<std::string> expand_command(std::vector<std::string> command,
                                        const Environment& variables);

// The values that the runtime passes to one worker.
struct WorkerSetting {
  std::string rendezvous;  // host:port
  std::string job_key_file;
  std::int64_t index = 0;
};

// The variables of the runtime, then those of the manifest, in the order of their expansion. Values
// are not expanded. Variables with valueFrom are left out.
std::vector<std::pair<std::string, std::string>> worker_environment(const TrainJob& job,
                                                                    const WorkerSetting& setting);

// Whether spec.worker.env sets one of these variables.
bool sets_any(const TrainJob& job, std::initializer_list<std::string_view> names);

// Variables that the runtime sets and a manifest cannot set.
std::span<const char* const> runtime_variables();
bool is_runtime_variable(std::string_view name);

}  // namespace tilewright::api
