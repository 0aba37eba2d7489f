#include "worker/cli/flag_help.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/contract/tasks.h"
#include "common/contract/training_flags.h"

namespace tilewright::cli {
namespace {

constexpr std::string_view kDefaultTask = "default: that of the model's config.json";

// A flag as a command uses it. Empty fields: as in the table of flags.
struct FlagUse {
  std::string_view name;
  std::string_view help = {};
  std::string_view default_value = {};
};

// In order: what `eval` and `predict` have at the beginning, each alone, and at the end.
constexpr FlagUse kModelFlags[] = {
    {"model_name_or_path", "trained model: a directory, or a name on the Hugging Face hub"},
    {"model_revision"},
    {"config_name"},
    {"tokenizer_name"},
    {"dataset_name"},
    {"dataset_config_name"},
    {"data_dir"},
};
constexpr FlagUse kEvalFlags[] = {
    {"task_name", "task to evaluate on", kDefaultTask},
    {"validation_file"},
    {"max_eval_samples"},
    {"output_dir", "directory for the results", "without it they are only printed"},
};
constexpr FlagUse kPredictFlags[] = {
    {"task_name", "task to predict", kDefaultTask},
    {"test_file"},
    {"max_predict_samples"},
    {"output_dir", "directory for the predictions", "required without --input"},
};
constexpr FlagUse kComputationFlags[] = {
    {"max_seq_length"},
    {"doc_stride"},
    {"version_2_with_negative"},
    {"null_score_diff_threshold"},
    {"n_best_size"},
    {"max_answer_length"},
    {"per_device_eval_batch_size"},
    {"bf16"},
    {"gemm_backend"},
    {"threads"},
    {"cache_dir"},
    {"token"},
    {"log_level"},
};

std::string describe(const TrainingFlag& flag, const FlagUse& use = {}) {
  const std::string value = describe_default(flag);
  const std::string expected = flag.type == FlagType::kString ? "" : describe_expected(flag) + "; ";
  std::string requirement(use.default_value);
  if (requirement.empty() && flag.required) requirement = "required";
  if (requirement.empty()) requirement = fmt::format("default {}", value.empty() ? "empty" : value);
  return fmt::format("  --{:<30} {} ({}{})\n", flag.name, use.help.empty() ? flag.help : use.help,
                     expected, requirement);
}

std::string describe(std::span<const FlagUse> uses) {
  std::string text;
  for (const FlagUse& use : uses) {
    const TrainingFlag* flag = find_training_flag(use.name);
    TW_CHECK(flag != nullptr && flag->works(), "--{}", use.name);
    text += describe(*flag, use);
  }
  return text;
}

constexpr const char* kHeading = "Flags, as --name=value or --name value:\n";

std::string tasks() {
  std::string text = "\nTasks:\n";
  for (const TaskDescription& task : task_descriptions()) {
    text += fmt::format("  {:<32} {}\n", task.name, task.summary);
  }
  for (const QuestionAnsweringTask& task : question_answering_tasks()) {
    text += fmt::format("  {:<32} {}\n", task.name, task.summary);
  }
  return text;
}

std::string example(std::string_view command) { return fmt::format("\nExample:\n  {}\n", command); }

}  // namespace

std::string train_help() {
  std::string text = kHeading;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.works()) text += describe(flag);
  }
  return text + tasks() +
         example(
             "tilewright-worker train --task_name mrpc --model_name_or_path bert-base-uncased "
             "--output_dir out/mrpc");
}

std::string eval_help() {
  return kHeading + describe(kModelFlags) + describe(kEvalFlags) + describe(kComputationFlags) +
         tasks() + example("tilewright-worker eval --model_name_or_path out/mrpc");
}

std::string predict_help() {
  const std::string input = fmt::format(
      "  --{:<30} {}\n", "input FILE",
      "predict these JSON lines instead of a task's test examples, -: those of standard input; "
      "{\"sentence\": ...}, {\"sentence1\": ..., \"sentence2\": ...} or {\"question\": ..., "
      "\"context\": ...}. Prints a JSON line for each, after the end of the input. Of the flags it "
      "needs model_name_or_path");
  return kHeading + input + describe(kModelFlags) + describe(kPredictFlags) +
         describe(kComputationFlags) + tasks() +
         example(
             "echo '{\"sentence1\": \"...\", \"sentence2\": \"...\"}' | tilewright-worker predict "
             "--model_name_or_path out/mrpc --input -");
}

std::string bench_start_help() {
  return fmt::format("  --{:<30} {}\n\n", "json", "print JSON") + train_help();
}

}  // namespace tilewright::cli
