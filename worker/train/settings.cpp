#include "worker/train/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_report.h"
#include "common/contract/virtual_shards.h"
#include "worker/collectives/shard_tree.h"
#include "worker/kernels/gemm/onednn.h"

namespace tilewright::train {
namespace {

using training_report::kEvaluationPrefix;

constexpr std::string_view kCommHookSetting = "ddp_comm_hook";
constexpr double kDefaultEvalSteps = 500;  // the default of logging_steps in TrainingArguments

[[noreturn]] void refuse(const FlagProblem& problem) {
  throw Failure(ExitCode::kUsage, problem.sentence());
}

// Throws one Failure that names all flags that are missing.
void check_required(const Settings& settings) {
  std::string missing;
  for (const FlagProblem& problem : missing_flags(settings)) {
    missing += (missing.empty() ? "" : "; ") + problem.sentence();
  }
  if (!missing.empty()) throw Failure(ExitCode::kUsage, missing);
}

// The task of run_qa.py's and run_glue.py's --dataset_name.
std::string task_of_dataset(const Settings& settings) {
  DatasetTask found = tilewright::task_of_dataset(settings.dataset_name,
                                                  settings.dataset_config_name, settings.task_name);
  if (found.problem) refuse(*found.problem);
  return std::move(found.task);
}

// Files of the user's own are question answering if they look like it, if a flag is given that only
// run_qa.py has, or if the model is evaluated or predicts as it is and answers questions.
void choose_question_answering(const TrainingArguments& arguments, const Machine& machine,
                               Settings& settings) {
  std::string reason;
  if (!machine.question_file.empty()) {
    reason = fmt::format("{} has questions, contexts and answers", machine.question_file);
  }
  if (const std::string_view flag = run_qa_flag(arguments); reason.empty() && !flag.empty()) {
    reason = fmt::format("--{} is a flag of run_qa.py", flag);
  }
  if (reason.empty() && !settings.do_train && machine.model_task.answers_questions) {
    reason = "the model answers questions";
  }
  if (reason.empty()) return;
  settings.task_name = question_answering_task(settings.version_2_with_negative);
  settings.task_choice =
      fmt::format("question answering, as with --task_name={}: {}", settings.task_name, reason);
}

void resolve_task(const TrainingArguments& arguments, const Machine& machine, Settings& settings) {
  if (!settings.dataset_name.empty()) settings.task_name = task_of_dataset(settings);
  const bool own_files = !own_file_flag(settings).empty();
  if (settings.task_name.empty() && !own_files && !settings.do_train) {
    settings.task_name = known_task(machine.model_task.finetuning_task);
  }
  if (settings.task_name.empty() && own_files) {
    choose_question_answering(arguments, machine, settings);
  }
  if (settings.task_name.empty()) return;
  settings.task_name = lower_case(settings.task_name);
  // The default of run_qa.py.
  if (!arguments.is_set("max_seq_length") && answers_questions(settings.task_name)) {
    settings.max_seq_length = 384;
  }
}

// As TrainingArguments does, but load_best_model_at_end needs no equal intervals.
void resolve_evaluation(const TrainingArguments& arguments, Settings& settings) {
  if (settings.eval_steps == 0) {
    const bool logged = settings.eval_strategy == "steps" && arguments.is_set("logging_steps");
    settings.eval_steps = logged ? settings.logging_steps : kDefaultEvalSteps;
  }
  const bool best = settings.needs_best_model();
  std::string& metric = settings.metric_for_best_model;
  if (metric.empty() && best) metric = "loss";
  if (metric.empty()) return;
  if (const auto problem = unknown_metric(settings, metric)) refuse(*problem);
  if (!arguments.is_set("greater_is_better"))
    settings.greater_is_better = !metric.ends_with("loss");
  if (!metric.starts_with(kEvaluationPrefix)) metric.insert(0, kEvaluationPrefix);
}

void resolve_shards(const Machine& machine, Settings& settings) {
  // Without exact, ranks share the examples without regard to shards.
  const std::int64_t workers = settings.do_train && settings.exact ? settings.max_workers : 1;
  std::string_view source = "--virtual_shards";
  if (settings.virtual_shards == 0) {
    settings.virtual_shards = machine.virtual_shards;
    source = env::kVirtualShards;
  }
  if (settings.virtual_shards > 0) {
    const Status status =
        collectives::check_shards(static_cast<int>(settings.virtual_shards),
                                  static_cast<int>(workers), settings.global_batch);
    if (status.ok()) return;
    throw Failure(status.error().code, fmt::format("{}: {}", source, status.error().message));
  }
  settings.virtual_shards = choose_virtual_shards(settings.global_batch, settings.max_workers);
  if (settings.virtual_shards >= workers) return;
  throw Failure(ExitCode::kUsage,
                fmt::format("found {} processes for a global batch of {} examples "
                            "(--per_device_train_batch_size {} x {} processes x "
                            "--gradient_accumulation_steps {}), expected at most {} processes, or "
                            "larger values of these flags",
                            workers, settings.global_batch, settings.per_device_train_batch_size,
                            settings.nominal_workers, settings.gradient_accumulation_steps,
                            settings.virtual_shards));
}

void add_value(nlohmann::json& values, const TrainingFlag& flag, const Settings& settings) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
          values[std::string(flag.name)] = settings.*member;
        }
      },
      flag.member);
}

}  // namespace

std::string known_task(std::string name) {
  std::erase(name, '-');
  name = lower_case(name);
  const std::vector<std::string_view> known = task_names();
  return std::ranges::find(known, name) == known.end() ? "" : name;
}

void check_metric(const Settings& settings, std::string_view written,
                  std::vector<std::string_view> names) {
  if (const auto problem = unknown_metric(settings, written, std::move(names))) refuse(*problem);
}

Settings make_settings(const TrainingArguments& arguments, const Machine& machine) {
  Settings settings{arguments.settings()};
  resolve_actions(arguments, settings);
  resolve_task(arguments, machine, settings);
  for (const FlagProblem& problem : conflicting_flags(arguments, settings)) refuse(problem);
  check_required(settings);
  resolve_evaluation(arguments, settings);
  if (!arguments.is_set("bf16")) {
    settings.chooses_data_type = true;
    settings.bf16 = machine.has_bf16;
  }
  settings.exact = is_exact(settings);
  resolve_equivalent_values(settings);
  if (settings.save_total_limit < 0) settings.save_total_limit = 0;
  if (settings.nominal_workers == 0) settings.nominal_workers = machine.world;
  settings.max_workers = std::max(settings.max_workers, settings.nominal_workers);
  settings.global_batch =
      global_batch_size(settings.per_device_train_batch_size, settings.nominal_workers,
                        settings.gradient_accumulation_steps);
  resolve_shards(machine, settings);
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
  if (!settings.uses_onednn() || kernels::limit_onednn_isa(isa, settings.precision())) return;
  const bool fp32_works = settings.bf16 && kernels::has_onednn(isa, runtime::Precision::kFp32);
  const auto lowest = std::ranges::find_if(runtime::kAllIsas, [&](runtime::Isa each) {
    return kernels::has_onednn(each, settings.precision());
  });
  throw Failure(
      ExitCode::kUnsupported,
      fmt::format("--gemm_backend=onednn: found {} on {}, for which oneDNN has no kernels, "
                  "expected {}--gemm_backend=native or TILEWRIGHT_ISA={} or above",
                  runtime::name(settings.precision()), runtime::name(isa),
                  fp32_works ? "--bf16=false, " : "", runtime::name(*lowest)));
}

nlohmann::json fingerprint(const Settings& settings) {
  nlohmann::json values;
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.determines_weights_of(settings)) continue;
    if (flag.name == kDataTypeSetting && settings.chooses_data_type) continue;
    // Checkpoints of versions without the flag have no value of it.
    if (flag.name == kCommHookSetting && !settings.rounds_gradients()) continue;
    add_value(values, flag, settings);
  }
  // An integer, as in checkpoints of versions that took no fraction of all steps.
  if (settings.warmup_steps >= 1 || settings.warmup_steps == 0) {
    values["warmup_steps"] = static_cast<std::int64_t>(settings.warmup_steps);
  }
  values["global_batch_size"] = settings.global_batch;
  // Each batch is padded to its longest example.
  if (settings.loss_counts_padding) {
    values["per_device_train_batch_size"] = settings.per_device_train_batch_size;
  }
  return values;
}

nlohmann::json evaluation_fingerprint(const Settings& settings) {
  nlohmann::json values = {{"do_train", settings.do_train},
                           {"do_eval", settings.do_eval},
                           {"do_predict", settings.do_predict}};
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.determines_best_model) add_value(values, flag, settings);
  }
  return values;
}

}  // namespace tilewright::train
