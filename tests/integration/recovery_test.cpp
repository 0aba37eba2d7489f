// Losses of workers without a checkpoint: the survivors continue from memory, replacements get the
// state from them, and the weights are bitwise those of an undisturbed training. save_steps is
// larger than the training, so a worker that went back to a checkpoint would start from step 0.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "common/base/exit_codes.h"
#include "tests/integration/training_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunningProgram;
using testing::ScopedFault;

class Recovery : public testing::Training {
 protected:
  struct Job {
    int replicas = 2;
    int min_replicas = 1;
    int max_steps = 8;
    int save_steps = 100'000;
    std::string trainer_lines = {};  // more lines of spec.trainer
  };

  // The hash of the same training in one process without faults.
  std::string reference(const std::vector<std::string>& more) {
    static std::map<std::vector<std::string>, std::string> known;
    std::string& hash = known[more];
    if (!hash.empty()) return hash;
    std::vector<std::string> flags = {"--save_steps=100000"};
    flags.insert(flags.end(), more.begin(), more.end());
    return hash = train_in_one_process("reference", 2, flags);
  }
  void write_job(const Job& job) const {
    write_manifest({.name = "recovery",
                    .replicas = job.replicas,
                    .min_replicas = job.min_replicas,
                    .max_restarts = 50,
                    .max_steps = job.max_steps,
                    .save_steps = job.save_steps,
                    .trainer_lines = "    logging_steps: 1\n" + job.trainer_lines});
  }
  // What a test does while the job trains.
  using Meanwhile = std::function<void(RunningProgram& up)>;

  // Trains under `up` with the faults and expects the hash, at most one lost step for each loss,
  // no checkpoint that is read, and every step once in the log history.
  void expect_same_hash(const Job& job, const std::string& faults, const std::string& expected,
                        int batch = 8, const Meanwhile& meanwhile = {}) {
    fs::remove_all(folder() / "up");
    fs::remove_all(folder() / ".tilewright");
    write_job(job);
    const ScopedFault scoped(faults);
    RunningProgram up(testing::program("tilewright"), {"up", "job.yaml"}, folder());
    if (meanwhile) meanwhile(up);
    ASSERT_EQ(up.wait(), 0) << faults << "\n" << up.output() << logs();
    output_ = up.output();
    EXPECT_EQ(digest(), expected) << faults << logs();
    EXPECT_THAT(logs(), AllOf(HasSubstr("recovered: "), Not(HasSubstr("resuming from")))) << faults;
    EXPECT_EQ(logged_steps(), job.max_steps) << state().at("log_history").dump();
    EXPECT_EQ(state().at("stateful_callbacks").at("tilewright").at("examples_consumed"),
              job.max_steps * batch);
    std::int64_t last = 0;
    const std::regex line("\nstep +([0-9]+)/");
    for (std::sregex_iterator at(output_.begin(), output_.end(), line), end; at != end; ++at) {
      const std::int64_t step = std::stoll((*at)[1]);
      EXPECT_GE(step, last) << "a loss has cost more than one step\n" << output_;
      last = step;
    }
  }
  std::string logs() const {
    std::string text;
    if (!fs::exists(folder() / ".tilewright")) return text;
    for (const auto& entry : fs::directory_iterator(folder() / ".tilewright/recovery/logs")) {
      text += "\n" + entry.path().filename().string() + "\n" + testing::read_text(entry.path());
    }
    return text;
  }
  nlohmann::json state() const {
    return nlohmann::json::parse(testing::read_text(folder() / "up/trainer_state.json"));
  }
  // The number of entries of the log history that are steps 1, 2, 3, ...; -1: they are others.
  std::int64_t logged_steps() const {
    std::int64_t count = 0;
    const nlohmann::json found = state();
    for (const auto& entry : found.at("log_history")) {
      if (entry.contains("loss") && entry.at("step") != ++count) return -1;
    }
    return count;
  }
};

// One kill after another, each in the next membership epoch. Both workers are needed, so the
// survivor waits for each replacement.
std::string one_per_epoch(const std::vector<std::string>& faults) {
  std::string text;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    text += fmt::format("{}{},epoch={}", i == 0 ? "" : ";", faults[i], i + 1);
  }
  return text;
}

TEST_F(Recovery, HasTheSameHashWhenWorkersAreKilledInAnyPhaseOfAStep) {
  const std::string expected = reference({"--max_steps=8"});
  expect_same_hash(
      {.min_replicas = 2},
      one_per_epoch({"step.begin@2,worker=1", "step.after_backward@3,worker=0",
                     "reduce_scatter.before_send,worker=1", "reduce_scatter.after_send,worker=0"}),
      expected);
  expect_same_hash({.min_replicas = 2},
                   one_per_epoch({"all_gather.before_send@2,worker=1", "bucket.done@3,worker=0",
                                  "step.after_exchange,worker=1", "step.after_update,worker=0"}),
                   expected);
}

// The later ones kill the replacement, which has no state or a part of it.
TEST_F(Recovery, HasTheSameHashWhenWorkersAreKilledWhileTheyJoin) {
  expect_same_hash(
      {.min_replicas = 2},
      one_per_epoch({"step.begin@3,worker=1", "epoch.connect,worker=1", "state.transfer,worker=1"}),
      reference({"--max_steps=8"}));
  EXPECT_THAT(logs(), HasSubstr("membership epoch 4: "));
  expect_same_hash({.min_replicas = 2},
                   one_per_epoch({"step.begin@3,worker=1", "epoch.begin,worker=1",
                                  "state.agreed,worker=1", "state.restored,worker=1"}),
                   reference({"--max_steps=8"}));
  EXPECT_THAT(logs(), HasSubstr("membership epoch 5: "));
}

// One of two senders dies while the third worker receives: it begins again with who is left.
TEST_F(Recovery, BeginsTheTransferAgainWhenASenderIsLost) {
  expect_same_hash({.replicas = 3, .min_replicas = 3},
                   "all_gather.before_send@3,worker=0;state.transfer,worker=1,epoch=2",
                   reference({"--max_steps=8", "--nominal_workers=3"}), 12);
}

// Two workers train while the third gets the state, because the first part of it takes long; then
// the same while one of the two dies.
TEST_F(Recovery, TrainsWhileAReplacementGetsTheState) {
  constexpr const char* kSlow =
      "all_gather.before_send@3,worker=0;state.transfer,worker=1,epoch=2,delay=500;"
      "state.transfer,worker=2,epoch=2,delay=500";
  const std::string expected = reference({"--max_steps=8", "--nominal_workers=3"});
  const Job three{.replicas = 3, .min_replicas = 3};
  expect_same_hash(three, kSlow, expected, 12);
  EXPECT_THAT(logs(), ContainsRegex("3 workers continue after step 3 .* for a part of 187 MB"));
  EXPECT_THAT(logs(), HasSubstr("worker 0 has the state: its rest was sent during step"));
  expect_same_hash(three, std::string(kSlow) + ";step.after_backward@3,worker=1,epoch=2", expected,
                   12);
  EXPECT_THAT(logs(), HasSubstr("membership epoch 3: "));
}

// The survivor continues alone at once.
TEST_F(Recovery, DoesNotWaitForTheReplacement) {
  testing::HeldPoint held(folder() / "held");
  // The first epoch has both workers only if it needs both.
  const auto need_one = [&](RunningProgram& up) {
    held.wait_until_held();
    write_job({.min_replicas = 1});
    up.send(SIGUSR1);
    held.release();
  };
  expect_same_hash({.min_replicas = 2},
                   held.fault("step.begin@0") + ";all_gather.before_send@5,worker=0",
                   reference({"--max_steps=8"}), 8, need_one);
  EXPECT_THAT(output_, ContainsRegex("recovered +worker 0 lost in step 6, which runs again; 1 "
                                     "worker continues after step 5 in [0-9.]+ s"));
}

// The new rank 0 writes the checkpoint that the lost one has not completed, of the step that the
// others have reached meanwhile.
TEST_F(Recovery, ContinuesWhenRank0IsKilledWhileItWritesACheckpoint) {
  for (const char* points : {"checkpoint.begin;checkpoint.before_rename,epoch=2",
                             "checkpoint.write;checkpoint.done,epoch=2"}) {
    expect_same_hash({.min_replicas = 2, .max_steps = 12, .save_steps = 4}, points,
                     reference({"--max_steps=12"}));
    EXPECT_THAT(logs(), HasSubstr("membership epoch 3: ")) << points;
    int complete = 0;
    for (const auto& entry : fs::directory_iterator(folder() / "up")) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
      if (name.starts_with("checkpoint-")) complete += fs::exists(entry.path() / "checksums.json");
    }
    EXPECT_GE(complete, 1) << logs();
  }
}

// The checkpoint of step 4 takes until the job has recovered from the loss of the other worker.
TEST_F(Recovery, DoesNotWaitForACheckpointThatRank0Writes) {
  testing::HeldPoint held(folder() / "held");
  expect_same_hash(
      {.min_replicas = 2, .max_steps = 12, .save_steps = 4},
      held.fault("checkpoint.before_rename,worker=0") + ";step.after_backward@5,worker=1",
      reference({"--max_steps=12"}), 8, [&](RunningProgram& up) {
        up.wait_for_output("recovered");
        held.release();
      });
  const std::string lines = logs();
  const auto written = lines.find("checkpoint-4 in ");
  ASSERT_NE(written, std::string::npos) << lines;
  EXPECT_LT(lines.find("recovered: worker 1 lost"), written) << lines;
  EXPECT_TRUE(fs::exists(folder() / "up/checkpoint-12/checksums.json"));
  EXPECT_THAT(lines, Not(HasSubstr("not written")));
}

// The best model, its metric and the evaluations are not only in rank 0's memory.
TEST_F(Recovery, KeepsTheBestModelWhenRank0IsLost) {
  const std::vector<std::string> best = {"--max_steps=8",
                                         "--eval_strategy=steps",
                                         "--eval_steps=3",
                                         "--max_eval_samples=40",
                                         "--load_best_model_at_end",
                                         "--metric_for_best_model=loss",
                                         "--greater_is_better=false"};
  const Job job{.min_replicas = 2, .trainer_lines = R"(    eval_strategy: steps
    eval_steps: 3
    max_eval_samples: 40
    load_best_model_at_end: true
    metric_for_best_model: loss
    greater_is_better: false)"};
  expect_same_hash(job,
                   "evaluate.begin@5,worker=0;step.begin@7,worker=0,epoch=2;"
                   "best_model.loaded,worker=0,epoch=3;output.begin,worker=0,epoch=4",
                   reference(best));
  EXPECT_LT(state().at("best_global_step"), job.max_steps) << "expected one of before a loss";
  const auto evaluated_steps = [&](const char* output) {
    const auto found =
        nlohmann::json::parse(testing::read_text(folder() / output / "trainer_state.json"));
    std::vector<std::int64_t> steps;
    for (const auto& entry : found.at("log_history")) {
      if (entry.contains("eval_loss")) steps.push_back(entry.at("step"));
    }
    return steps;
  };
  EXPECT_EQ(evaluated_steps("up"), evaluated_steps("reference"));
  // The last checkpoint has the weights and moments of the last step, not of the best model.
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(testing::read_text(folder() / "up/checkpoint-8" / file) ==
                testing::read_text(folder() / "reference/checkpoint-8" / file))
        << file;
  }
}

// Also if the others hear of it late, because the machine is busy.
TEST_F(Recovery, AWorkerThatIsToldToStopIsNotLost) {
  write_job({.replicas = 3, .max_steps = 5000});
  RunningProgram up(testing::program("tilewright"), {"up", "job.yaml"}, folder());
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    busy.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
      }
    });
  }
  ASSERT_TRUE(up.wait_for_output("step      10/5000")) << up.output();
  for (const int replicas : {2, 1}) {
    write_job({.replicas = replicas, .max_steps = 5000});
    up.send(SIGUSR1);
    ASSERT_TRUE(up.wait_for_output(replicas == 2 ? "; 2 workers continue after"
                                                 : "; 1 worker continues after"))
        << up.output();
  }
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), static_cast<int>(ExitCode::kTerminated)) << up.output();
  EXPECT_THAT(logs(), AllOf(Not(HasSubstr("recovered: ")), Not(HasSubstr(" lost"))));
}

// Ctrl-C reaches all workers: none keeps the state in memory, so it is written.
TEST_F(Recovery, WritesACheckpointWhenAllWorkersLeave) {
  write_job({.max_steps = 5000});
  RunningProgram up(testing::program("tilewright"), {"up", "job.yaml"}, folder());
  ASSERT_TRUE(up.wait_for_output("step      10/5000"));
  up.send(SIGINT);
  EXPECT_EQ(up.wait(), static_cast<int>(ExitCode::kInterrupted)) << up.output();
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder() / "up")) {
    checkpoints += entry.path().filename().string().starts_with("checkpoint-") ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 1) << up.output() << logs();
}

}  // namespace
}  // namespace tilewright
