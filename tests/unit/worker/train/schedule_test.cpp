#include "worker/train/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "worker/train/settings.h"

namespace tilewright::train {
namespace {

TEST(Schedule, CountsStepsAsHuggingFacesTrainer) {
  TrainingSettings settings;
  settings.num_train_epochs = 3;
  Schedule s = make_schedule(settings, 3668, 32);
  EXPECT_EQ(s.steps_per_epoch, 115);
  EXPECT_EQ(s.total_steps, 345);
  settings.num_train_epochs = 0.5;
  EXPECT_EQ(make_schedule(settings, 3668, 32).total_steps, 58);
  settings.max_steps = 100;
  EXPECT_EQ(make_schedule(settings, 3668, 32).total_steps, 100);
}

// Trainer._inner_training_loop: epoch + (step + 1) / steps_in_epoch after an optimizer step, where
// `step` and steps_in_epoch count micro-batches.
TEST(Schedule, CountsAnEpochInMicroBatches) {
  TrainingSettings settings;
  settings.gradient_accumulation_steps = 4;
  const Schedule s = make_schedule(settings, 80, 32);  // ten micro-batches of 8
  ASSERT_EQ(s.steps_per_epoch, 3);
  EXPECT_EQ(s.epoch_after(0), 0);
  EXPECT_DOUBLE_EQ(s.epoch_after(1), 0.4);
  EXPECT_DOUBLE_EQ(s.epoch_after(2), 0.8);
  EXPECT_EQ(s.epoch_after(3), 1);
  EXPECT_DOUBLE_EQ(s.epoch_after(4), 1.4);
  EXPECT_EQ(s.epoch_after(6), 2);
  EXPECT_DOUBLE_EQ(make_schedule(settings, 81, 32).epoch_after(2), 8.0 / 11);
  settings.dataloader_drop_last = true;
  EXPECT_DOUBLE_EQ(make_schedule(settings, 87, 32).epoch_after(2), 0.8);
  settings.gradient_accumulation_steps = 1;
  EXPECT_DOUBLE_EQ(make_schedule(settings, 80, 32).epoch_after(1), 0.5);
}

// transformers.get_linear_schedule_with_warmup:
// step / warmup, then (total - step) / (total - warmup).
TEST(Schedule, RisesOverTheWarmUpAndFallsToZero) {
  TrainingSettings settings;
  settings.max_steps = 10;
  settings.warmup_steps = 2;
  settings.learning_rate = 1.0;
  const Schedule s = make_schedule(settings, 100, 10);
  EXPECT_DOUBLE_EQ(s.learning_rate(0), 0.0);
  EXPECT_DOUBLE_EQ(s.learning_rate(1), 0.5);
  EXPECT_DOUBLE_EQ(s.learning_rate(2), 1.0);
  EXPECT_DOUBLE_EQ(s.learning_rate(6), 0.5);
  EXPECT_DOUBLE_EQ(s.learning_rate(9), 0.125);
  EXPECT_DOUBLE_EQ(s.learning_rate(10), 0.0);
}

TEST(Schedule, AcceptsWarmUpAsARatioOfAllSteps) {
  TrainingSettings settings;
  settings.max_steps = 95;
  settings.warmup_ratio = 0.1;
  EXPECT_EQ(make_schedule(settings, 100, 10).warmup_steps, 10);
  settings.warmup_steps = 0.2;  // as in transformers 5
  EXPECT_EQ(make_schedule(settings, 100, 10).warmup_steps, 19);
  settings.warmup_steps = 1;
  EXPECT_EQ(make_schedule(settings, 100, 10).warmup_steps, 1);
}

TEST(Schedule, ConstantLearningRateDoesNotChange) {
  TrainingSettings settings;
  settings.max_steps = 10;
  settings.learning_rate = 2.0;
  settings.lr_scheduler_type = "constant";
  EXPECT_DOUBLE_EQ(make_schedule(settings, 100, 10).learning_rate(9), 2.0);
}

// Every step of every scheduler, from tests/golden/train/write_goldens.py.
TEST(Schedule, HasTheLearningRatesOfTransformers) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/schedules.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::set<std::string> names;
  for (const auto& one : golden.at("cases")) {
    TrainingSettings settings;
    settings.lr_scheduler_type = one.at("name");
    settings.learning_rate = golden.at("peak");
    settings.max_steps = one.at("steps");
    settings.warmup_steps = one.at("warmup_steps");
    settings.warmup_ratio = one.at("warmup_ratio");
    names.insert(settings.lr_scheduler_type);
    const Schedule schedule = make_schedule(settings, 1000, 10);
    const auto& rates = one.at("learning_rates");
    ASSERT_EQ(static_cast<std::int64_t>(rates.size()), schedule.total_steps);
    for (std::int64_t step = 0; step < schedule.total_steps; ++step) {
      const double expected = rates[static_cast<std::size_t>(step)];
      EXPECT_NEAR(schedule.learning_rate(step), expected, 1e-12 * schedule.peak)
          << settings.lr_scheduler_type << ", step " << step << " of " << schedule.total_steps;
    }
  }
  const auto& choices = find_training_flag("lr_scheduler_type")->choices;
  EXPECT_EQ(names, std::set<std::string>(choices.begin(), choices.end()));
}

// Only the complete micro-batches of all processes count.
TEST(Schedule, LeavesOutIncompleteBatches) {
  TrainingSettings settings;
  settings.dataloader_drop_last = true;
  settings.num_train_epochs = 2;
  EXPECT_EQ(make_schedule(settings, 3668, 32).total_steps, 228);
  EXPECT_EQ(examples_per_epoch(settings, 3668, 32), 3648);
  EXPECT_EQ(make_schedule(settings, 3648, 32).total_steps, 228);
  settings.gradient_accumulation_steps = 4;  // 32 examples are four micro-batches of 8
  EXPECT_EQ(make_schedule(settings, 3668, 32).total_steps, 230);
  EXPECT_EQ(examples_per_epoch(settings, 3668, 32), 3664);
  EXPECT_EQ(make_schedule(settings, 7, 32).steps_per_epoch, 0);
}

TEST(Schedule, SaysWhatIsDueAfterAStep) {
  TrainingSettings settings;
  settings.num_train_epochs = 1.5;
  const Schedule s = make_schedule(settings, 100, 10);
  EXPECT_TRUE(s.is_due("steps", 4, 8));
  EXPECT_FALSE(s.is_due("steps", 4, 15));
  EXPECT_TRUE(s.is_due("epoch", 4, 10));
  EXPECT_FALSE(s.is_due("epoch", 4, 12));
  EXPECT_TRUE(s.is_due("epoch", 4, 15)) << "the last step ends an epoch";
  EXPECT_FALSE(s.is_due("no", 1, 10));
  EXPECT_FALSE(s.is_due("best", 1, 10));
  EXPECT_FALSE(s.is_due("steps", 0, 10));
}

TEST(Schedule, SaysWhatIsDueBeforeTheEnd) {
  TrainingSettings settings;
  settings.num_train_epochs = 1.5;
  Schedule s = make_schedule(settings, 100, 10);
  ASSERT_EQ(s.total_steps, 15);
  for (const char* strategy : {"steps", "epoch", "no"}) {
    for (const std::int64_t interval : {0, 1, 4, 14, 15, 16}) {
      bool due = false;
      for (std::int64_t step = 15; step >= 1; --step) {
        due = due || (step < 15 && s.is_due(strategy, interval, step));
        EXPECT_EQ(s.is_due_before_end(strategy, interval, step), due)
            << strategy << " " << interval << " from " << step;
      }
    }
  }
  s.total_steps = std::int64_t{1} << 49;
  EXPECT_FALSE(s.is_due_before_end("steps", s.total_steps, 1)) << "not step by step";
}

// From tests/golden/train/write_goldens.py. What the Trainer does after the last step is in
// training_state_test.cpp.
TEST(Schedule, LogsEvaluatesAndSavesAtTheStepsOfTheTrainer) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/arguments.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& one : golden.at("steps")) {
    const std::int64_t total = one.at("max_steps");
    std::istringstream flags(one.at("flags").get<std::string>());
    std::vector<std::string> words = {"--model_name_or_path=m", "--task_name=mrpc",
                                      "--output_dir=o", fmt::format("--max_steps={}", total)};
    for (std::string word; flags >> word;) words.push_back(word);
    const Settings settings = make_settings(TrainingArguments::parse(words).or_throw(), {});
    const Schedule s = make_schedule(settings, 3200, 32);
    SCOPED_TRACE(one.at("flags"));
    EXPECT_EQ(s.logging_steps, one.at("logging_steps"));
    EXPECT_EQ(s.eval_steps, one.at("eval_steps"));
    EXPECT_EQ(s.save_steps, std::max<std::int64_t>(0, one.at("save_steps")));
    std::vector<std::int64_t> logged, evaluated, saved;
    for (std::int64_t step = 1; step <= total; ++step) {
      if (s.is_due(settings.logging_strategy, s.logging_steps, step)) logged.push_back(step);
      if (settings.eval_strategy == "steps" && s.is_due("steps", s.eval_steps, step)) {
        evaluated.push_back(step);
      }
      const bool last = step == total && settings.save_strategy == "steps";
      if (last || s.is_due(settings.save_strategy, s.save_steps, step)) saved.push_back(step);
    }
    EXPECT_EQ(nlohmann::json(logged), one.at("logged"));
    EXPECT_EQ(nlohmann::json(evaluated), one.at("evaluated"));
    EXPECT_EQ(nlohmann::json(saved), one.at("saved"));
  }
}

}  // namespace
}  // namespace tilewright::train
