#include "common/contract/training_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <variant>

#include "common/base/printable.h"
#include "common/contract/tasks.h"
#include "common/contract/training_report.h"

namespace tilewright {

void resolve_actions(const TrainingArguments& arguments, TrainingSettings& settings) {
  const auto asked = [&](const char* flag, bool value) { return arguments.is_set(flag) && value; };
  const bool any = asked("do_train", settings.do_train) || asked("do_eval", settings.do_eval) ||
                   asked("do_predict", settings.do_predict);
  if (any) {
    if (!arguments.is_set("do_train")) settings.do_train = false;
    if (!arguments.is_set("do_eval")) settings.do_eval = false;
  }
  if (settings.do_train && settings.eval_strategy != "no") settings.do_eval = true;
}

void resolve_equivalent_values(TrainingSettings& settings) {
  if (settings.train_sampling_strategy == "group_by_length") settings.group_by_length = true;
  if (settings.max_grad_norm < 0) settings.max_grad_norm = 0;
  if (settings.init_seed < 0) settings.init_seed = settings.seed;
  if (settings.data_seed < 0) settings.data_seed = settings.seed;
}

bool is_exact(const TrainingSettings& settings) {
  return settings.exact && settings.gemm_backend == "native";
}

bool answers_questions(std::string_view task_name) {
  return std::ranges::any_of(question_answering_tasks(),
                             [&](const auto& known) { return known.name == task_name; });
}

std::string_view run_qa_flag(const TrainingArguments& arguments) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.of_run_qa && arguments.is_set(flag.name)) return flag.name;
  }
  return "";
}

void infer_question_answering(const TrainingArguments& arguments, TrainingSettings& settings) {
  if (!settings.task_name.empty() || own_file_flag(settings).empty() ||
      run_qa_flag(arguments).empty()) {
    return;
  }
  settings.task_name = question_answering_task(settings.version_2_with_negative);
}

std::array<OwnFile, 3> own_files(const TrainingSettings& settings) {
  return {{{kOwnFileFlags[0], settings.train_file},
           {kOwnFileFlags[1], settings.validation_file},
           {kOwnFileFlags[2], settings.test_file}}};
}

std::array<OwnFile, 3> files_to_read(const TrainingSettings& settings) {
  std::array<OwnFile, 3> files = own_files(settings);
  // The labels of a classification are those of the training file.
  if (!settings.do_train && answers_questions(settings.task_name)) files[0].path = {};
  if (!settings.do_eval) files[1].path = {};
  if (!settings.do_predict) files[2].path = {};
  return files;
}

std::string_view own_file_flag(const TrainingSettings& settings) {
  for (const OwnFile& file : own_files(settings)) {
    if (!file.path.empty()) return file.flag;
  }
  return "";
}

std::vector<FlagProblem> missing_files(const TrainingSettings& settings) {
  std::vector<FlagProblem> missing;
  if (own_file_flag(settings).empty() || !settings.data_dir.empty() ||
      !settings.dataset_name.empty() ||
      (!settings.task_name.empty() && !answers_questions(settings.task_name))) {
    return missing;
  }
  const auto expect_file = [&](bool needed, const std::string& file, std::string_view flag,
                               std::string_view instead) {
    if (!needed || !file.empty()) return;
    missing.push_back({flag, "", fmt::format("the {}{}", find_training_flag(flag)->help, instead)});
  };
  const bool may_omit_evaluation = settings.do_train && settings.eval_strategy == "no";
  expect_file(settings.do_train, settings.train_file, "train_file", "");
  expect_file(settings.do_eval, settings.validation_file, "validation_file",
              may_omit_evaluation ? ", or --do_train without --do_eval" : "");
  expect_file(settings.do_predict, settings.test_file, "test_file", "");
  return missing;
}

std::vector<FlagProblem> missing_flags(const TrainingSettings& settings) {
  std::vector<FlagProblem> missing;
  if (settings.task_name.empty() && own_file_flag(settings).empty()) {
    missing.push_back(
        {"task_name", "",
         fmt::format("{}, --dataset_name, {}", describe_expected(*find_training_flag("task_name")),
                     settings.do_train
                         ? "or files of your own with --train_file and --validation_file"
                         : "a file of your own with --validation_file or --test_file, or a model "
                           "whose config.json has its task as finetuning_task")});
  }
  for (const TrainingFlag& flag : training_flags()) {
    const auto* member = std::get_if<std::string TrainingSettings::*>(&flag.member);
    if (!flag.required || member == nullptr || !(settings.**member).empty()) continue;
    // Without it, an evaluation only prints its results.
    if (flag.name == "output_dir" && !settings.do_train && !settings.do_predict) continue;
    missing.push_back({flag.name, "",
                       flag.type == FlagType::kChoice ? describe_expected(flag)
                                                      : fmt::format("the {}", flag.help)});
  }
  for (FlagProblem& file : missing_files(settings)) missing.push_back(std::move(file));
  return missing;
}

std::vector<FlagProblem> conflicting_flags(const TrainingArguments& arguments,
                                           const TrainingSettings& settings) {
  std::vector<FlagProblem> problems;
  if (!settings.do_train && !settings.do_eval && !settings.do_predict) {
    problems.push_back({"do_train", "--do_train=false and --do_eval=false",
                        "at least one of them, or --do_predict, true"});
  }
  // A second source of the same data would not be read. Question answering takes the files that are
  // not given from data_dir.
  if (!settings.data_dir.empty()) {
    std::string_view other = settings.dataset_name.empty() ? "" : "dataset_name";
    if (other.empty() && !answers_questions(settings.task_name)) other = own_file_flag(settings);
    if (!other.empty()) {
      problems.push_back({"data_dir", fmt::format("{} and --{}", excerpt(settings.data_dir), other),
                          "only one of them"});
    }
  }
  if (settings.needs_best_model() && settings.do_train && settings.eval_strategy == "no") {
    const bool load = settings.load_best_model_at_end;
    problems.push_back({load ? "load_best_model_at_end" : "save_strategy",
                        fmt::format("{} with --eval_strategy=no",
                                    load ? "--load_best_model_at_end" : "--save_strategy=best"),
                        "steps or epoch: the best model is found by evaluations during the "
                        "training"});
  }
  if (settings.load_best_model_at_end && settings.save_strategy == "no") {
    problems.push_back({"load_best_model_at_end",
                        "--load_best_model_at_end with --save_strategy=no",
                        "steps, epoch or best: the best model is loaded from a checkpoint"});
  }
  // The user would take the results of the model for those of the checkpoint.
  if (!settings.do_train && !settings.resume_from_checkpoint.empty()) {
    problems.push_back({"resume_from_checkpoint", "--resume_from_checkpoint without --do_train",
                        "a training; to evaluate or predict with a checkpoint, give it as "
                        "--model_name_or_path"});
  }
  if (settings.do_train && settings.lr_scheduler_type == "polynomial" &&
      settings.learning_rate <= kPolynomialEnd) {
    problems.push_back(
        {"lr_scheduler_type",
         fmt::format("--lr_scheduler_type=polynomial with --learning_rate={}",
                     settings.learning_rate),
         fmt::format("a rate above {}, to which this schedule decays", kPolynomialEnd)});
  }
  if (settings.gemm_backend == "onednn" && settings.exact && arguments.is_set("exact")) {
    problems.push_back({"exact", "--gemm_backend=onednn with --exact=true",
                        "--exact=false: oneDNN does not guarantee the same bits for different "
                        "numbers of rows and threads"});
  }
  return problems;
}

bool has_row_suffix(std::string_view path) {
  constexpr std::array<std::string_view, 4> kSuffixes = {".csv", ".tsv", ".json", ".jsonl"};
  const std::string_view name = path.substr(path.rfind('/') + 1);
  // As std::filesystem::path::extension(): ".csv" alone is a hidden file without an extension.
  const std::size_t dot = name.rfind('.');
  return dot != std::string_view::npos && dot > 0 &&
         std::ranges::find(kSuffixes, name.substr(dot)) != kSuffixes.end();
}

std::vector<FlagProblem> unknown_suffixes(const TrainingSettings& settings) {
  std::vector<FlagProblem> problems;
  if (!settings.task_name.empty()) return problems;
  for (const auto& [flag, path] : own_files(settings)) {
    if (path.empty() || has_row_suffix(path)) continue;
    problems.push_back({flag, excerpt(path), std::string(kExpectedRowSuffix)});
  }
  return problems;
}

std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written,
                                          std::vector<std::string_view> names) {
  if (!settings.do_train || settings.eval_strategy == "no" || written.empty()) return std::nullopt;
  const std::string_view name = training_report::evaluation_result(written).value_or(written);
  names.insert(names.begin(), "loss");
  if (std::ranges::find(names, name) != names.end()) return std::nullopt;
  return FlagProblem{"metric_for_best_model", excerpt(written),
                     fmt::format("one of {}", fmt::join(names, ", "))};
}

std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written) {
  return unknown_metric(settings, written,
                        evaluation_metrics(settings.task_name, settings.version_2_with_negative));
}

std::vector<FlagProblem> check_flags(const TrainingArguments& arguments) {
  TrainingSettings settings = arguments.settings();
  resolve_actions(arguments, settings);
  std::vector<FlagProblem> problems;
  if (!settings.dataset_name.empty()) {
    DatasetTask found =
        task_of_dataset(settings.dataset_name, settings.dataset_config_name, settings.task_name);
    if (found.problem) return {*std::move(found.problem)};
    settings.task_name = std::move(found.task);
  }
  infer_question_answering(arguments, settings);
  const auto add = [&](std::vector<FlagProblem> found) {
    std::ranges::move(found, std::back_inserter(problems));
  };
  add(missing_flags(settings));
  // The model of an evaluation can name its task.
  std::erase_if(problems, [&](const FlagProblem& problem) {
    return problem.flag == "task_name" && !settings.do_train;
  });
  add(conflicting_flags(arguments, settings));
  add(unknown_suffixes(settings));
  if (!settings.task_name.empty()) {
    const auto metric = unknown_metric(settings, settings.metric_for_best_model);
    if (metric) problems.push_back(*metric);
  }
  return problems;
}

}  // namespace tilewright
