#include "worker/train/schedule.h"

#include <gtest/gtest.h>

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
}

TEST(Schedule, ConstantLearningRateDoesNotChange) {
  TrainingSettings settings;
  settings.max_steps = 10;
  settings.learning_rate = 2.0;
  settings.lr_scheduler_type = "constant";
  EXPECT_DOUBLE_EQ(make_schedule(settings, 100, 10).learning_rate(9), 2.0);
}

}  // namespace
}  // namespace tilewright::train
