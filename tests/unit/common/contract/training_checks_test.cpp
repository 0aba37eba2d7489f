// The checks of flags against each other that the worker and `tilewright validate` share.
#include "common/contract/training_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/tasks.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Resolved {
  TrainingArguments arguments;
  TrainingSettings settings;
};

Resolved resolve(const std::vector<std::string>& words) {
  Resolved resolved{TrainingArguments::parse(words).or_throw(), {}};
  resolved.settings = resolved.arguments.settings();
  resolve_actions(resolved.arguments, resolved.settings);
  return resolved;
}

std::vector<std::string> conflicts(const std::vector<std::string>& words) {
  const Resolved resolved = resolve(words);
  std::vector<std::string> sentences;
  for (const FlagProblem& problem : conflicting_flags(resolved.arguments, resolved.settings)) {
    EXPECT_NE(find_training_flag(problem.flag), nullptr) << problem.flag;
    sentences.push_back(problem.sentence());
  }
  return sentences;
}

std::vector<std::string> missing(const std::vector<std::string>& words) {
  std::vector<std::string> sentences;
  for (const FlagProblem& problem : missing_files(resolve(words).settings)) {
    sentences.push_back(problem.sentence());
  }
  return sentences;
}

TEST(TrainingChecks, ResolveTheActionsAsTheScriptsDo) {
  const auto actions = [](const std::vector<std::string>& words) {
    const TrainingSettings settings = resolve(words).settings;
    return std::vector<bool>{settings.do_train, settings.do_eval, settings.do_predict};
  };
  EXPECT_THAT(actions({}), ElementsAre(true, true, false));
  EXPECT_THAT(actions({"--do_train"}), ElementsAre(true, false, false));
  EXPECT_THAT(actions({"--do_train", "--eval_strategy=epoch"}), ElementsAre(true, true, false));
  EXPECT_THAT(actions({"--do_predict"}), ElementsAre(false, false, true));
  EXPECT_THAT(actions({"--do_eval=false"}), ElementsAre(true, false, false));
}

TEST(TrainingChecks, FindFlagsThatExcludeEachOther) {
  EXPECT_THAT(conflicts({}), IsEmpty());
  EXPECT_THAT(conflicts({"--do_train=false", "--do_eval=false"}),
              ElementsAre("found --do_train=false and --do_eval=false, expected at least one of "
                          "them, or --do_predict, true"));
  EXPECT_THAT(conflicts({"--load_best_model_at_end"}),
              ElementsAre("found --load_best_model_at_end with --eval_strategy=no, expected steps "
                          "or epoch: the best model is found by evaluations during the training"));
  EXPECT_THAT(conflicts({"--save_strategy=best"}),
              ElementsAre("found --save_strategy=best with --eval_strategy=no, expected steps or "
                          "epoch: the best model is found by evaluations during the training"));
  EXPECT_THAT(conflicts({"--save_strategy=best", "--eval_strategy=epoch"}), IsEmpty());
  EXPECT_THAT(conflicts({"--resume_from_checkpoint=o/checkpoint-3"}), IsEmpty());
  EXPECT_THAT(conflicts({"--do_eval", "--resume_from_checkpoint=o/checkpoint-3"}),
              ElementsAre("found --resume_from_checkpoint without --do_train, expected a training; "
                          "to evaluate or predict with a checkpoint, give it as "
                          "--model_name_or_path"));
  EXPECT_THAT(conflicts({"--lr_scheduler_type=polynomial", "--learning_rate=1e-7"}),
              ElementsAre("found --lr_scheduler_type=polynomial with --learning_rate=1e-07, "
                          "expected a rate above 1e-07, to which this schedule decays"));
  EXPECT_THAT(conflicts({"--lr_scheduler_type=polynomial", "--learning_rate=2e-7"}), IsEmpty());
  EXPECT_THAT(conflicts({"--load_best_model_at_end", "--do_predict"}), IsEmpty())
      << "without a training";
  EXPECT_THAT(
      conflicts({"--load_best_model_at_end", "--eval_strategy=epoch", "--save_strategy=no"}),
      ElementsAre("found --load_best_model_at_end with --save_strategy=no, expected steps, epoch "
                  "or best: the best model is loaded from a checkpoint"));
  EXPECT_THAT(conflicts({"--gemm_backend=onednn"}), IsEmpty());
  EXPECT_THAT(conflicts({"--gemm_backend=onednn", "--exact"}),
              ElementsAre("found --gemm_backend=onednn with --exact=true, expected --exact=false: "
                          "oneDNN does not guarantee the same bits for different numbers of rows "
                          "and threads"));
  EXPECT_THAT(conflicts({"--data_dir=d", "--dataset_name=squad"}),
              ElementsAre("--data_dir: found d and --dataset_name, expected only one of them"));
  EXPECT_THAT(conflicts({"--data_dir=d", "--test_file=t.csv"}),
              ElementsAre("--data_dir: found d and --test_file, expected only one of them"));
  EXPECT_THAT(conflicts({"--data_dir=d", "--test_file=t.json", "--task_name=squad"}), IsEmpty());
}

TEST(TrainingChecks, FindMissingFilesOfTheUsersOwn) {
  EXPECT_THAT(missing({}), IsEmpty());
  EXPECT_THAT(missing({"--train_file=t.csv", "--validation_file=v.csv"}), IsEmpty());
  EXPECT_THAT(missing({"--train_file=t.csv"}),
              ElementsAre("--validation_file is missing, expected the file with the examples to "
                          "evaluate on, or --do_train without --do_eval"));
  EXPECT_THAT(missing({"--train_file=t.csv", "--do_train"}), IsEmpty());
  EXPECT_THAT(missing({"--train_file=t.csv", "--eval_strategy=epoch"}),
              ElementsAre("--validation_file is missing, expected the file with the examples to "
                          "evaluate on"));
  EXPECT_THAT(
      missing({"--validation_file=v.csv", "--do_eval", "--do_predict"}),
      ElementsAre("--test_file is missing, expected the file with the examples to predict"));
  EXPECT_THAT(missing({"--train_file=t.json", "--task_name=squad", "--data_dir=d"}), IsEmpty());
}

TEST(TrainingChecks, FindAllThatAWorkerRefusesBeforeItReadsAFile) {
  const auto check = [](const std::vector<std::string>& words) {
    std::vector<std::string> sentences;
    for (const FlagProblem& problem : check_flags(TrainingArguments::parse(words).or_throw())) {
      sentences.push_back(problem.sentence());
    }
    return sentences;
  };
  EXPECT_THAT(check({"--model_name_or_path=m", "--dataset_name=squad", "--output_dir=o"}),
              IsEmpty());
  EXPECT_THAT(check({"--model_name_or_path=m", "--do_eval"}), IsEmpty())
      << "the model can name its task";
  EXPECT_THAT(check({"--model_name_or_path=m", "--dataset_name=imdb", "--output_dir=o"}),
              ElementsAre(::testing::StartsWith(
                  "--dataset_name: found imdb, expected glue, or one of ax, ")));
  EXPECT_THAT(check({"--dataset_name=squad", "--save_strategy=best"}),
              ElementsAre(::testing::StartsWith("--model_name_or_path is missing, expected the "),
                          ::testing::StartsWith("--output_dir is missing, expected the "),
                          ::testing::StartsWith("found --save_strategy=best with ")));
  EXPECT_THAT(check({"--model_name_or_path=m", "--output_dir=o"}),
              ElementsAre(::testing::StartsWith("--task_name is missing, expected one of ax, ")));
  EXPECT_THAT(check({"--model_name_or_path=m", "--output_dir=o", "--do_train", "--train_file=a"}),
              ElementsAre("--train_file: found a, expected a file that ends in .csv, .tsv, .json "
                          "or .jsonl"));
  EXPECT_THAT(check({"--model_name_or_path=m", "--output_dir=o", "--dataset_name=squad",
                     "--eval_strategy=epoch", "--metric_for_best_model=bleu"}),
              ElementsAre("--metric_for_best_model: found bleu, expected one of loss, exact_match, "
                          "f1"));
}

TEST(TrainingChecks, KnowTheFilesOfAClassification) {
  for (const char* path : {"a.csv", "work:a/b.tsv", "/a/b.json", "a.b.jsonl"}) {
    EXPECT_TRUE(has_row_suffix(path)) << path;
  }
  for (const char* path : {"", "a", "a.txt", "a.json.gz", ".csv", "a/.csv", "a.csv/b"}) {
    EXPECT_FALSE(has_row_suffix(path)) << path;
  }
}

TEST(TrainingChecks, FindAMetricThatTheTaskDoesNotHave) {
  const auto problem_of = [](std::vector<std::string> words, const std::string& metric) {
    words.push_back("--metric_for_best_model=" + metric);
    const auto problem =
        unknown_metric(resolve(words).settings, metric, evaluation_metrics("mrpc", false));
    return problem ? problem->sentence() : "";
  };
  const std::vector<std::string> training = {"--eval_strategy=epoch"};
  EXPECT_EQ(problem_of(training, "bleu"),
            "--metric_for_best_model: found bleu, expected one of loss, accuracy, f1, "
            "combined_score");
  for (const char* metric : {"f1", "eval_accuracy", "eval_loss", ""}) {
    EXPECT_EQ(problem_of(training, metric), "") << metric;
  }
  EXPECT_EQ(problem_of({}, "bleu"), "") << "nothing uses it";
}

}  // namespace
}  // namespace tilewright
