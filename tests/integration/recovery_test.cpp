// Losses of workers without a checkpoint: the survivors continue from memory, replacements get the
// state from them, and the weights are bitwise those of an undisturbed training. save_steps is
// larger than the training, so a worker that went back to a checkpoint would start from step 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "common/base/exit_codes.h"
#include "tests/integration/training_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunningProgram;
using testing::ScopedFault;

class Recovery : public testing::Training {
 protected:
  const std::vector<std::string> without_checkpoints_ = {"--save_steps=1000", "--max_steps=8",
                                                         "--logging_steps=1"};
  // The hash of the undisturbed training.
  std::string reference() { return train_in_one_process("reference", 2, without_checkpoints_); }

  // Each step once, in order; after a loss the step that was lost is only in the log of a rank 0
  // that had begun, not completed it.
  void expect_recovered_in_memory(const std::string& what) {
    EXPECT_THAT(output_, Not(HasSubstr("resuming from"))) << what << "\n" << output_;
    EXPECT_THAT(output_, HasSubstr("recovered: ")) << what << "\n" << output_;
    std::int64_t before = 0;
    const std::regex step("info step ([0-9]+)/8");
    for (std::sregex_iterator at(output_.begin(), output_.end(), step), end; at != end; ++at) {
      const std::int64_t now = std::stoll((*at)[1]);
      EXPECT_GE(now, before) << what << ": more than one step was lost\n" << output_;
      before = now;
    }
    for (const auto& entry : fs::directory_iterator(folder() / "out")) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("checkpoint-"))) << what;
    }
    EXPECT_EQ(state().at("stateful_callbacks").at("tilewright").at("examples_consumed"), 8 * 32);
    EXPECT_EQ(logged_steps(), 8) << what << ": the log history has every step once";
  }
  nlohmann::json state() const {
    return nlohmann::json::parse(testing::read_text(folder() / "out/trainer_state.json"));
  }
  std::int64_t logged_steps() const {
    std::int64_t count = 0;
    for (const auto& entry : state().at("log_history")) {
      if (entry.contains("loss") && entry.at("step") == ++count) continue;
      count -= entry.contains("loss") ? 1000 : 1;
    }
    return count;
  }
};

// In each phase of a step, of joining and of the transfer of the state. The agent restarts the
// killed process; with a fixed number of processes the survivor waits for it.
TEST_F(Recovery, HasTheSameHashWhenAWorkerIsKilledInAnyPhase) {
  const std::string expected = reference();
  for (const char* fault : {
           "step.begin@5,worker=1",
           "step.after_backward@5,worker=0",
           "reduce_scatter.before_send@5,worker=1",
           "reduce_scatter.after_send@5,worker=0",
           "all_gather.before_send@5,worker=1",
           "bucket.done@5,worker=0",
           "step.after_exchange@5,worker=1",
           "step.after_update@5,worker=0",
           "step.after_update@5,worker=1;epoch.connect,worker=1,epoch=2",
           "step.begin@5,worker=0;epoch.begin,worker=0,epoch=2",
           "step.begin@5,worker=1;state.agreed,worker=1,epoch=2",
           "step.begin@5,worker=0;state.transfer,worker=0,epoch=2",
           "step.begin@5,worker=1;state.restored,worker=1,epoch=2",
       }) {
    fs::remove_all(folder() / "out");
    const ScopedFault scoped(fault);
    EXPECT_EQ(train_in_processes("out", 2, without_checkpoints_), expected) << fault;
    expect_recovered_in_memory(fault);
  }
}

// One of two senders dies while the third process receives: it begins again with who is left.
TEST_F(Recovery, BeginsTheTransferAgainWhenASenderIsLost) {
  const std::string expected = reference();
  const ScopedFault scoped("step.begin@5,worker=0;state.transfer,worker=1,epoch=2");
  EXPECT_EQ(train_in_processes("out", 3, without_checkpoints_), expected);
  expect_recovered_in_memory("a sender");
}

// All senders die during the transfer: a state that is received in part is none.
TEST_F(Recovery, StartsFromStorageWhenNobodyHasTheState) {
  const std::string expected = reference();
  const ScopedFault scoped("step.begin@5,worker=0;state.transfer,worker=1,epoch=2");
  EXPECT_EQ(train_in_processes("out", 2, without_checkpoints_), expected);
}

// The new rank 0 writes the checkpoint that the lost one has not completed.
TEST_F(Recovery, ContinuesWhenRank0IsKilledWhileItWritesACheckpoint) {
  const std::string expected = reference();
  for (const char* point : {"checkpoint.begin", "checkpoint.before_rename", "checkpoint.done"}) {
    fs::remove_all(folder() / "out");
    const ScopedFault scoped(std::string(point) + "@3,worker=0");
    EXPECT_EQ(
        train_in_processes("out", 2, {"--save_steps=4", "--max_steps=8", "--logging_steps=1"}),
        expected)
        << point;
    EXPECT_THAT(output_, Not(HasSubstr("resuming from"))) << point;
    EXPECT_TRUE(fs::exists(folder() / "out/checkpoint-4/checksums.json")) << point;
    EXPECT_EQ(logged_steps(), 8) << point;
  }
}

// The best model, its metric and the evaluations are not only in rank 0's memory.
TEST_F(Recovery, KeepsTheBestModelWhenRank0IsLostDuringAnEvaluation) {
  const std::vector<std::string> best = {"--max_steps=8",         "--save_steps=1000",
                                         "--eval_strategy=steps", "--eval_steps=3",
                                         "--max_eval_samples=40", "--load_best_model_at_end",
                                         "--logging_steps=1",     "--metric_for_best_model=loss",
                                         "--greater_is_better"};
  const std::string expected = train_in_one_process("reference", 2, best);
  for (const char* fault : {"evaluate.begin@5,worker=0", "step.begin@7,worker=0"}) {
    fs::remove_all(folder() / "out");
    const ScopedFault scoped(fault);
    EXPECT_EQ(train_in_processes("out", 2, best), expected) << fault;
    EXPECT_THAT(output_, Not(HasSubstr("resuming from"))) << fault;
    int evaluations = 0;
    for (const auto& entry : state().at("log_history")) {
      evaluations += entry.contains("eval_loss") ? 1 : 0;
    }
    EXPECT_EQ(evaluations, 3) << fault << ": steps 3 and 6 and the end";
  }
}

// `up` with one worker at least: the survivor goes on alone, and the replacement joins later.
class RecoveryUnderUp : public Recovery {
 protected:
  void write_up_manifest(int max_steps) const {
    write_manifest(max_steps);
    std::string text = testing::read_text(folder() / "job.yaml");
    text.replace(text.find("save_steps: 4"), 13, "save_steps: 100000");
    std::ofstream(folder() / "job.yaml") << text;
  }
  std::string log_of(int worker) const {
    return testing::read_text(folder() / ".tilewright/hash/logs" /
                              ("hash-worker-" + std::to_string(worker) + ".log"));
  }
};

TEST_F(RecoveryUnderUp, TheSurvivorDoesNotWaitForTheReplacement) {
  const std::string expected = reference();
  write_up_manifest(8);
  const ScopedFault scoped("step.after_backward@5,worker=0");
  EXPECT_EQ(run({"up", "job.yaml"}, "tilewright"), 0) << output_;
  EXPECT_EQ(digest(), expected);
  EXPECT_THAT(output_, ContainsRegex("recovered +worker 0 lost in step 6, which runs again; 1 "
                                     "worker goes on after step 5 in 0\\.[0-9]+ s"));
  EXPECT_THAT(log_of(0) + log_of(1), Not(HasSubstr("resuming from")));
}

// Ctrl-C reaches all workers: nobody keeps the state in memory, so it is written.
TEST_F(RecoveryUnderUp, WritesACheckpointWhenAllWorkersLeave) {
  write_up_manifest(5000);
  RunningProgram up(testing::program("tilewright"), {"up", "job.yaml"}, folder());
  ASSERT_TRUE(up.wait_for_output("10/5000"));
  up.send(SIGINT);
  EXPECT_EQ(up.wait(), static_cast<int>(ExitCode::kInterrupted)) << up.output();
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder() / "up")) {
    checkpoints += entry.path().filename().string().starts_with("checkpoint-") ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 1) << up.output() << log_of(0) << log_of(1);
}

}  // namespace
}  // namespace tilewright
