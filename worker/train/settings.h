// The settings of a training: the values of its flags, and what follows from them before a worker
// starts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/training_flags.h"
#include "worker/checkpoint/model_config.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/precision.h"

namespace tilewright::train {

// make_settings() resolves these flags in place:
// - nominal_workers, max_workers and virtual_shards are never 0, init_seed and data_seed never -1;
// - exact is false with the oneDNN backend;
// - task_name follows from dataset_name if it is not given, without a training from the model, and
//   with files of the user's own from their layout, from flags that only run_qa.py has and, without
//   a training, from the model's head;
// - do_train, do_eval and do_predict say what is done;
// - max_seq_length has the default of the task's script;
// - eval_steps is above 0, max_grad_norm and save_total_limit are not below 0;
// - metric_for_best_model begins with "eval_", unless nothing needs it, and greater_is_better
//   belongs to it.
struct Settings : TrainingSettings {
  // Examples per optimizer step: per-device batch size x nominal workers x accumulation steps. It
  // stays the same for the whole job, whatever the number of workers.
  std::int64_t global_batch = 0;
  // Without --bf16 the data type follows from the instruction set of the membership epoch: bf16 if
  // it has bf16 instructions. bf16 then holds the choice of this machine alone.
  bool chooses_data_type = false;
  // For the log: the task that was chosen for files of the user's own, and why. Empty: the flags
  // name the task, or it is the one of run_glue.py.
  std::string task_choice = {};

  runtime::Precision precision() const {
    return bf16 ? runtime::Precision::kBf16 : runtime::Precision::kFp32;
  }
  bool uses_onednn() const { return gemm_backend == "onednn"; }
  bool rounds_gradients() const { return ddp_comm_hook == "bf16"; }
};

// What determines the settings, besides the flags.
struct Machine {
  std::int64_t world = 1;           // of the launcher or WORLD_SIZE: nominal_workers if that is 0
  std::int64_t virtual_shards = 0;  // if the flag is 0; 0: automatic
  bool has_bf16 = true;             // the CPU has instructions for it: the default of --bf16
  // See find_model_task(). Its finetuning_task, if it is a known task, is that of an evaluation or
  // a prediction without --task_name and files of the user's own.
  checkpoint::ModelTask model_task = {};
  // See find_question_file().
  std::string question_file = {};
};

// Throws Failure(kUsage) for a missing flag and for flags that exclude each other.
Settings make_settings(const TrainingArguments& arguments, const Machine& machine);

// "mrpc" for "MRPC", "sst2" for the older spelling "sst-2"; empty if there is no such task.
std::string known_task(std::string name);

// Throws Failure(kUsage) if the training selects its best model by a metric that is neither the
// loss nor one of `names`. `written`: the metric as the user wrote it, with or without "eval_".
void check_metric(const Settings& settings, std::string_view written,
                  std::vector<std::string_view> names);

// Whether one of the CPU's instruction sets computes on bf16.
bool has_bf16(std::span<const runtime::Isa> isas);

// What to log about the data type: whether it was chosen by default, or is emulated on `isa`.
// Empty: nothing.
std::string describe_data_type(const TrainingArguments& arguments, const Settings& settings,
                               runtime::Isa isa);

// Throws Failure(kUnsupported) if the settings select oneDNN and it has no kernels for their data
// type on `isa`.
void check_gemm_backend(const Settings& settings, runtime::Isa isa);

// The data type in the fingerprint.
inline constexpr std::string_view kDataTypeSetting = "bf16";

// The values that determine the trained weights, without the data type if it is not chosen yet. All
// workers must have the same, and so must a checkpoint and the training that resumes from it.
nlohmann::json fingerprint(const Settings& settings);
// Further values that all workers must have alike: what they do, and when they evaluate. Not in a
// checkpoint, so that a training can resume with another evaluation.
nlohmann::json evaluation_fingerprint(const Settings& settings);

}  // namespace tilewright::train
