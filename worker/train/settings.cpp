#include "worker/train/settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/result.h"
#include "common/contract/tasks.h"
#include "common/contract/virtual_shards.h"
#include "worker/collectives/shard_tree.h"
#include "worker/kernels/gemm/onednn.h"
#include "worker/tasks/registry.h"

namespace tilewright::train {
namespace {

constexpr std::string_view kCommHookSetting = "ddp_comm_hook";

void check_required(const Settings& settings) {
  for (const TrainingFlag& flag : training_flags()) {
    const auto* member = std::get_if<std::string TrainingSettings::*>(&flag.member);
    if (!flag.required || member == nullptr || !(settings.**member).empty()) continue;
    // Without it, an evaluation only prints its results.
    if (flag.name == "output_dir" && !settings.do_train && !settings.do_predict) continue;
    throw Failure(ExitCode::kUsage,
                  fmt::format("--{} is missing; expected {}", flag.name,
                              flag.type == FlagType::kChoice ? describe_expected(flag)
                                                             : fmt::format("the {}", flag.help)));
  }
}

// The task of run_qa.py's and run_glue.py's --dataset_name.
std::string task_of_dataset(const Settings& settings) {
  DatasetTask found =
      tilewright::task_of_dataset(settings.dataset_name, settings.dataset_config_name);
  if (!found.task.empty()) return std::move(found.task);
  throw Failure(ExitCode::kUsage, fmt::format("--{}: {}", found.wrong_flag, found.message));
}

// "mrpc" for "MRPC", "sst2" for the older spelling "sst-2"; empty if there is no such task.
std::string known_task(std::string name) {
  std::erase(name, '-');
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  }
  const std::vector<std::string_view> known = task_names();
  return std::ranges::find(known, name) == known.end() ? "" : name;
}

void resolve_task(const TrainingArguments& arguments, const Machine& machine, Settings& settings) {
  if (settings.task_name.empty() && !settings.dataset_name.empty()) {
    settings.task_name = task_of_dataset(settings);
  }
  const bool own_files = !settings.train_file.empty() || !settings.validation_file.empty() ||
                         !settings.test_file.empty();
  if (settings.task_name.empty() && !own_files && !settings.do_train) {
    settings.task_name = known_task(machine.model_task);
  }
  if (settings.task_name.empty()) {
    if (own_files) return;
    throw Failure(ExitCode::kUsage,
                  fmt::format("--task_name is missing; expected {}, --dataset_name, or files of "
                              "your own with --train_file and --validation_file",
                              describe_expected(*find_training_flag("task_name"))));
  }
  const auto task = tasks::find_task(settings.task_name);
  settings.task_name = task->name();
  // The default of run_qa.py.
  if (!arguments.is_set("max_seq_length") && task->head() == nn::Head::kQuestionAnswering) {
    settings.max_seq_length = 384;
  }
}

void resolve_actions(const TrainingArguments& arguments, Settings& settings) {
  const auto asked = [&](const char* flag, bool value) { return arguments.is_set(flag) && value; };
  const bool any = asked("do_train", settings.do_train) || asked("do_eval", settings.do_eval) ||
                   asked("do_predict", settings.do_predict);
  if (any) {
    if (!arguments.is_set("do_train")) settings.do_train = false;
    if (!arguments.is_set("do_eval")) settings.do_eval = false;
  }
  if (settings.do_train && settings.eval_strategy != "no") settings.do_eval = true;
  if (settings.do_train || settings.do_eval || settings.do_predict) return;
  throw Failure(ExitCode::kUsage,
                "found --do_train=false and --do_eval=false, expected at least one of them, or "
                "--do_predict, true");
}

// As TrainingArguments does, but load_best_model_at_end needs no equal intervals.
void resolve_evaluation(const TrainingArguments& arguments, Settings& settings) {
  if (settings.eval_steps == 0) settings.eval_steps = settings.logging_steps;
  const bool best = settings.needs_best_model();
  if (best && settings.do_train && settings.eval_strategy == "no") {
    throw Failure(ExitCode::kUsage,
                  fmt::format("found {} with --eval_strategy=no, expected steps or epoch: the best "
                              "model is found by evaluations during the training",
                              settings.load_best_model_at_end ? "--load_best_model_at_end"
                                                              : "--save_strategy=best"));
  }
  if (settings.load_best_model_at_end && settings.save_strategy == "no") {
    throw Failure(
        ExitCode::kUsage,
        "found --load_best_model_at_end with --save_strategy=no, expected steps, epoch or "
        "best: the best model is loaded from a checkpoint");
  }
  std::string& metric = settings.metric_for_best_model;
  if (metric.empty() && best) metric = "loss";
  if (metric.empty()) return;
  if (!arguments.is_set("greater_is_better"))
    settings.greater_is_better = !metric.ends_with("loss");
  if (!metric.starts_with("eval_")) metric = "eval_" + metric;
}

}  // namespace

Settings make_settings(const TrainingArguments& arguments, const Machine& machine) {
  Settings settings{arguments.settings()};
  resolve_actions(arguments, settings);
  resolve_task(arguments, machine, settings);
  check_required(settings);
  resolve_evaluation(arguments, settings);
  if (!arguments.is_set("bf16")) {
    settings.chooses_data_type = true;
    settings.bf16 = machine.has_bf16;
  }
  if (settings.uses_onednn() && settings.exact && arguments.is_set("exact")) {
    throw Failure(ExitCode::kUsage,
                  "found --gemm_backend=onednn with --exact=true, expected --exact=false: oneDNN "
                  "does not guarantee the same bits for different numbers of rows and threads");
  }
  if (settings.uses_onednn()) settings.exact = false;
  if (settings.init_seed < 0) settings.init_seed = settings.seed;
  if (settings.data_seed < 0) settings.data_seed = settings.seed;
  if (settings.nominal_workers == 0) settings.nominal_workers = machine.world;
  settings.max_workers = std::max(settings.max_workers, settings.nominal_workers);
  settings.global_batch =
      global_batch_size(settings.per_device_train_batch_size, settings.nominal_workers,
                        settings.gradient_accumulation_steps);
  if (settings.virtual_shards == 0) settings.virtual_shards = machine.virtual_shards;
  if (settings.virtual_shards == 0) {
    settings.virtual_shards = choose_virtual_shards(settings.global_batch, settings.max_workers);
  }
  if (const Status status =
          collectives::check_shards(static_cast<int>(settings.virtual_shards),
                                    static_cast<int>(settings.max_workers), settings.global_batch);
      !status.ok()) {
    throw Failure(status.error());
  }
  return settings;
}

bool has_bf16(std::span<const runtime::Isa> isas) {
  return std::ranges::any_of(isas, [](runtime::Isa isa) { return runtime::has_bf16(isa); });
}

std::string describe_data_type(const TrainingArguments& arguments, const Settings& settings,
                               runtime::Isa isa) {
  const bool native = runtime::has_bf16(isa);
  if (!arguments.is_set("bf16")) {
    return settings.bf16 ? "computing in bf16, for which this CPU has instructions; --bf16=false "
                           "selects fp32"
                         : "computing in fp32: this CPU has no bf16 instructions; --bf16 selects "
                           "bf16, emulated";
  }
  if (settings.bf16 && !native) {
    return fmt::format(
        "computing in bf16 as requested, emulated with {}: this CPU has no bf16 "
        "instructions",
        runtime::name(isa));
  }
  return "";
}

void check_gemm_backend(const Settings& settings, runtime::Isa isa) {
  if (!settings.uses_onednn() || kernels::limit_onednn_isa(isa, settings.bf16)) return;
  const bool fp32_works = settings.bf16 && kernels::has_onednn(isa, false);
  const auto lowest = std::ranges::find_if(runtime::kAllIsas, [&](runtime::Isa each) {
    return kernels::has_onednn(each, settings.bf16);
  });
  throw Failure(
      ExitCode::kUnsupported,
      fmt::format("--gemm_backend=onednn: found {} on {}, for which oneDNN has no kernels, "
                  "expected {}--gemm_backend=native or TILEWRIGHT_ISA={} or above",
                  settings.bf16 ? "bf16" : "fp32", runtime::name(isa),
                  fp32_works ? "--bf16=false, " : "", runtime::name(*lowest)));
}

nlohmann::json fingerprint(const Settings& settings) {
  nlohmann::json values;
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.determines_weights) continue;
    if (flag.name == kDataTypeSetting && settings.chooses_data_type) continue;
    // Checkpoints of versions without the flag have no value of it.
    if (flag.name == kCommHookSetting && !settings.rounds_gradients()) continue;
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
            values[std::string(flag.name)] = settings.*member;
          }
        },
        flag.member);
  }
  values["global_batch_size"] = settings.global_batch;
  return values;
}

}  // namespace tilewright::train
