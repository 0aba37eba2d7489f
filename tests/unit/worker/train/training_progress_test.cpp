#include "worker/train/training_progress.h"

#include <gtest/gtest.h>

#include "common/base/exit_codes.h"

namespace tilewright::train {
namespace {

class TrainingProgressTest : public ::testing::Test {
 protected:
  TrainingProgressTest() {
    job_.settings.save_strategy = "steps";
    job_.schedule.save_steps = 4;
    job_.schedule.logging_steps = 100;
    job_.schedule.total_steps = 100;
    job_.schedule.steps_per_epoch = 10;
  }

  static void train_to(TrainingProgress& progress, std::int64_t step, double loss = 1) {
    while (progress.step() < step) {
      progress.begin_step();
      progress.add({.step = progress.step() + 1, .total_steps = 100, .loss = loss, .examples = 8});
    }
  }

  Job job_;
  TrainingProgress progress_{job_};
};

TEST_F(TrainingProgressTest, NamesTheStepsOfItsSchedule) {
  job_.settings.save_steps = 0.04;
  progress_.begin_epoch(1);
  EXPECT_EQ(progress_.trainer_state().save_steps, 4);
  EXPECT_EQ(progress_.trainer_state().logging_steps, 100);
}

TEST_F(TrainingProgressTest, CountsEpochsAsTheTrainer) {
  job_.schedule.steps_per_epoch = 5;
  job_.settings.max_steps = 17;
  progress_.begin_epoch(1);
  EXPECT_EQ(progress_.trainer_state().num_train_epochs, 4);
  job_.settings.max_steps = -1;
  job_.settings.num_train_epochs = 3.0005;
  progress_.begin_epoch(1);
  EXPECT_EQ(progress_.trainer_state().num_train_epochs, 4);
}

// The mean loss of steps 5 and 6 is 5, whoever writes it.
TEST_F(TrainingProgressTest, AnotherWorkerContinuesIt) {
  train_to(progress_, 5, 3);
  TrainingProgress other(job_);
  other.decode(progress_.encode());
  EXPECT_EQ(other.step(), 5);
  EXPECT_EQ(other.position(), progress_.position());
  for (TrainingProgress* progress : {&progress_, &other}) {
    train_to(*progress, 6, 7);
    const checkpoint::TrainerState state = progress->checkpoint_state(2);
    EXPECT_EQ(state.examples_consumed, 48);
    EXPECT_EQ(state.membership_epoch, 2);
    ASSERT_EQ(state.log_history.size(), 2U) << "at the checkpoint of step 4, and now";
    EXPECT_EQ(state.log_history.at(1).at("loss"), 5);
    EXPECT_EQ(progress->save_step(), 4);
  }
}

// Those who have trained a step together have the same state, also if only some of them came as far
// in an epoch that broke. Others may have trained the same step with other sums.
TEST_F(TrainingProgressTest, NamesTheEpochThatCameToItsPosition) {
  progress_.begin_epoch(3);
  EXPECT_EQ(progress_.position(), (elastic::TrainingPosition{0, 0, 3})) << "the starting weights";
  train_to(progress_, 5);
  TrainingProgress other(job_);
  other.decode(progress_.encode());
  other.begin_epoch(4);
  EXPECT_EQ(progress_.position(), (elastic::TrainingPosition{5, 0, 3}));
  EXPECT_EQ(other.position(), progress_.position());
  train_to(other, 6);
  progress_.begin_epoch(5);
  train_to(progress_, 6);
  EXPECT_EQ(other.position(), (elastic::TrainingPosition{6, 0, 4}));
  EXPECT_GT(progress_.position(), other.position());
  progress_.add_evaluation({});
  EXPECT_EQ(progress_.position(), (elastic::TrainingPosition{6, 1, 5}));
  progress_.begin_epoch(6);
  EXPECT_EQ(progress_.position().epoch, 5);
  progress_.resume_from(progress_.checkpoint_state(6));
  progress_.begin_epoch(7);
  EXPECT_EQ(progress_.position().epoch, 7);
}

TEST_F(TrainingProgressTest, RefusesBytesThatAreNoProgress) {
  for (const std::string& text : {std::string("text"), std::string(), std::string(1, '\x80')}) {
    try {
      progress_.decode(text);
      ADD_FAILURE() << "no Failure was thrown";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kPeerLost) << failure.what();
    }
  }
}

TEST_F(TrainingProgressTest, CountsALostStepOnce) {
  train_to(progress_, 3);
  progress_.begin_step();
  progress_.count_recovery();
  progress_.count_recovery();  // lost again before a step began
  EXPECT_EQ(progress_.recovery_counts().recoveries, 2);
  EXPECT_EQ(progress_.recovery_counts().steps_lost, 1);
}

TEST_F(TrainingProgressTest, CountsTheStepsSinceTheCheckpointThatItResumesFrom) {
  train_to(progress_, 4);
  const checkpoint::TrainerState checkpoint = progress_.checkpoint_state(1);
  train_to(progress_, 6);
  progress_.begin_step();
  progress_.resume_from(checkpoint);
  progress_.count_lost_steps();
  EXPECT_EQ(progress_.step(), 4);
  EXPECT_EQ(progress_.recovery_counts().recoveries, 0);
  EXPECT_EQ(progress_.recovery_counts().steps_lost, 3);
}

}  // namespace
}  // namespace tilewright::train
