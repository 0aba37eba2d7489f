#include "common/contract/training_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/contract/tasks.h"
#include "common/contract/training_report.h"

namespace tilewright {

std::string FlagProblem::sentence() const {
  if (found.empty()) return fmt::format("--{} is missing, expected {}", flag, expected);
  const std::string place = found.starts_with("--") ? "" : fmt::format("--{}: ", flag);
  return fmt::format("{}found {}, expected {}", place, found, expected);
}

FlagProblem FlagProblem::from_message(std::string_view flag, std::string_view message) {
  constexpr std::string_view kFound = "found ";
  constexpr std::string_view kExpected = ", expected ";
  const std::size_t end = message.find(kExpected);
  TW_CHECK(message.starts_with(kFound) && end != std::string_view::npos, "a message \"{}\"",
           message);
  return {flag, std::string(message.substr(kFound.size(), end - kFound.size())),
          std::string(message.substr(end + kExpected.size()))};
}

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

std::string_view own_file_flag(const TrainingSettings& settings) {
  if (!settings.train_file.empty()) return "train_file";
  if (!settings.validation_file.empty()) return "validation_file";
  return settings.test_file.empty() ? "" : "test_file";
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
  for (const auto& [flag, file] : {std::pair("train_file", &settings.train_file),
                                   std::pair("validation_file", &settings.validation_file),
                                   std::pair("test_file", &settings.test_file)}) {
    if (file->empty() || has_row_suffix(*file)) continue;
    problems.push_back({flag, excerpt(*file), std::string(kExpectedRowSuffix)});
  }
  return problems;
}

std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written,
                                          std::vector<std::string_view> names) {
  if (!settings.do_train || settings.eval_strategy == "no" || written.empty()) return std::nullopt;
  std::string_view name = written;
  if (name.starts_with(training_report::kEvaluationPrefix)) {
    name.remove_prefix(training_report::kEvaluationPrefix.size());
  }
  names.insert(names.begin(), "loss");
  if (std::ranges::find(names, name) != names.end()) return std::nullopt;
  return FlagProblem{"metric_for_best_model", excerpt(written),
                     fmt::format("one of {}", fmt::join(names, ", "))};
}

std::vector<FlagProblem> check_flags(const TrainingArguments& arguments) {
  TrainingSettings settings = arguments.settings();
  resolve_actions(arguments, settings);
  std::vector<FlagProblem> problems;
  if (!settings.dataset_name.empty()) {
    DatasetTask found =
        task_of_dataset(settings.dataset_name, settings.dataset_config_name, settings.task_name);
    if (found.task.empty()) return {FlagProblem::from_message(found.wrong_flag, found.message)};
    settings.task_name = std::move(found.task);
  }
  if (settings.task_name.empty() && !own_file_flag(settings).empty() &&
      !run_qa_flag(arguments).empty()) {
    settings.task_name = question_answering_task(settings.version_2_with_negative);
  }
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
    const auto metric =
        unknown_metric(settings, settings.metric_for_best_model,
                       evaluation_metrics(settings.task_name, settings.version_2_with_negative));
    if (metric) problems.push_back(*metric);
  }
  return problems;
}

}  // namespace tilewright
