// Trains the first layers of MiniLM with the built programs: the weights are bitwise equal for any
// number of processes and threads, and after any crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "common/base/exit_codes.h"
#include "common/contract/output_owner.h"
#include "tests/integration/training_fixture.h"
#include "tests/support/faulty_fs.h"
#include "tests/support/local_ports.h"
#include "tests/support/scrape.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::RunningProgram;
using testing::ScopedFault;
using testing::Training;

TEST_F(Training, HasTheSameHashForAnyNumberOfThreadsAndProcesses) {
  const std::string reference = train_in_one_process("one", 1);
  EXPECT_EQ(train_in_one_process("two-threads", 2), reference);
  EXPECT_EQ(train_in_one_process("recomputed", 2, {"--gradient_checkpointing"}), reference);
  EXPECT_EQ(train_in_processes("two", 2), reference);
  EXPECT_EQ(train_in_processes("three", 3), reference);
  EXPECT_EQ(train_in_processes("memory", 2, {"--ddp_backend=shm"}), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("gradients are exchanged through shared memory\n"));
  EXPECT_EQ(train_in_processes("tcp", 2, {"--ddp_backend=tcp"}), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("gradients are exchanged over TCP\n"));
}

std::size_t count_of(const std::string& line, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++count;
  return count;
}

// The cache is used for more than 4 MiB of training data.
TEST_F(Training, TokenizesOnceForAllProcessesAndRestarts) {
  const testing::ScopedVariable cache("HF_DATASETS_CACHE", (folder() / "cache").string());
  fs::create_directories(folder() / "data");
  const std::string rows =
      testing::read_text(testing::source_dir() / "examples/data/paraphrase/train.tsv");
  const std::size_t header = rows.find('\n') + 1;
  std::string content = rows;
  while (content.size() <= std::size_t{4} << 20) content += rows.substr(header);
  std::ofstream(folder() / "data/train.tsv") << content;
  const std::vector<std::string> flags = {"--data_dir=" + (folder() / "data").string(),
                                          "--max_steps=2"};
  const std::string cached = "training data: cached in";
  const std::string found = "examples from the cache";

  const std::string reference = train_in_processes("two", 2, flags);
  EXPECT_EQ(count_of(cached, output_), 1U) << output_;
  EXPECT_EQ(count_of(found, output_), 1U) << output_;
  {
    const ScopedFault fault(once("step.begin@1"));
    EXPECT_EQ(train_in_processes("killed", 2, flags), reference);
  }
  EXPECT_EQ(count_of(cached, output_), 0U) << output_;
  EXPECT_EQ(count_of(found, output_), 3U) << output_;
  std::vector<std::string> again = flags;
  again.push_back("--overwrite_cache");
  EXPECT_EQ(train_in_one_process("overwritten", 2, again), reference);
  EXPECT_EQ(count_of(cached, output_), 1U) << output_;
  EXPECT_EQ(count_of(found, output_), 0U) << output_;
}

// With a kill in the middle of an exchange.
TEST_F(Training, HasTheSameHashWithSeveralStreams) {
  const std::string reference = train_in_one_process("one", 2);
  const std::vector<std::string> streams = {"--ddp_backend=tcp", "--ddp_streams=3"};
  EXPECT_EQ(train_in_processes("two", 2, streams), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("exchanged over TCP, by 3 threads per process"));
  for (const char* point : {"reduce_scatter.before_send", "all_gather.before_send"}) {
    const ScopedFault fault(once(fmt::format("{}@6", point)));
    EXPECT_EQ(train_in_processes(point, 2, streams), reference) << point;
    EXPECT_FALSE(fs::exists(folder() / "once")) << point;
    EXPECT_THAT(output_, ::testing::HasSubstr("lost worker 0")) << point;
  }
}

TEST_F(Training, HasTheSameHashForAnyNumberOfProcessesWithBf16Gradients) {
  const std::vector<std::string> rounded = {"--ddp_comm_hook=bf16"};
  const std::string reference = train_in_one_process("one", 2, rounded);
  EXPECT_NE(reference, train_in_one_process("fp32", 2));
  EXPECT_EQ(train_in_processes("memory", 2, {"--ddp_comm_hook=bf16", "--ddp_backend=shm"}),
            reference);
  EXPECT_EQ(train_in_processes("tcp", 3, {"--ddp_comm_hook=bf16", "--ddp_backend=tcp"}), reference);
  {
    const ScopedFault fault("checkpoint.done@7");
    std::vector<std::string> arguments = flags("killed");
    arguments.push_back(rounded.front());
    EXPECT_EQ(run(arguments), 128 + SIGKILL);
  }
  EXPECT_EQ(train_in_one_process("killed", 2, rounded), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-8 (step 8 of 12)"));
}

// Each batch of 4 is padded to its longest example, also if a process computes a part of it only.
TEST_F(Training, HasTheSameHashForAnyNumberOfProcessesWithThePaddingInTheLoss) {
  const std::vector<std::string> questions = {
      "--task_name=squad",
      "--data_dir=" + (testing::source_dir() / "examples/data/questions").string(),
      "--per_device_train_batch_size=4", "--max_steps=4"};
  std::vector<std::string> padded = questions;
  padded.emplace_back("--loss_counts_padding");
  const std::string reference = train_in_one_process("one", 2, padded);
  EXPECT_NE(train_in_one_process("packed", 2, questions), reference);
  EXPECT_EQ(train_in_processes("two", 2, padded), reference);
  EXPECT_EQ(train_in_processes("three", 3, padded), reference);
  padded.emplace_back("--gradient_checkpointing");
  EXPECT_EQ(train_in_one_process("recomputed", 1, padded), reference);
}

// A weight decay of 100 at learning rate 100 multiplies the weights by -9999 in each step.
TEST_F(Training, StopsAllProcessesWhenItDivergesAndKeepsTheCheckpoints) {
  std::vector<std::string> arguments = {"agent", "--nproc_per_node=2", "--"};
  for (const std::string& flag : flags("out")) arguments.push_back(flag);
  arguments.insert(arguments.end(),
                   {"--learning_rate=100", "--lr_scheduler_type=constant", "--weight_decay=100",
                    "--save_steps=1", "--save_total_limit=1", "--max_steps=60", "--threads=1"});
  EXPECT_EQ(run(arguments), static_cast<int>(ExitCode::kDiverged)) << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("at learning rate 100, expected a finite number"));
  EXPECT_THAT(output_, ::testing::HasSubstr("use another --output_dir or --overwrite_output_dir"));
  EXPECT_FALSE(fs::exists(folder() / "out" / "model.safetensors"));
  const auto entries = fs::directory_iterator(folder() / "out");
  EXPECT_TRUE(std::any_of(fs::begin(entries), fs::end(entries), [](const fs::directory_entry& one) {
    return one.path().filename().string().starts_with("checkpoint-");
  })) << output_;
}

TEST_F(Training, StartsWithOtherFlagsWhereItDivergedWithoutACheckpoint) {
  std::vector<std::string> diverging = flags("out");
  diverging.insert(diverging.end(), {"--learning_rate=100", "--lr_scheduler_type=constant",
                                     "--weight_decay=100", "--save_strategy=no", "--max_steps=60"});
  EXPECT_EQ(run(diverging), static_cast<int>(ExitCode::kDiverged)) << output_;
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("--overwrite_output_dir")));
  EXPECT_TRUE(fs::is_empty(folder() / "out"));
  train_in_one_process("out", 2, {"--max_steps=1"});
}

// Pods created before maxReplicas was raised join such a world. One process runs a step as one
// micro-batch with one sum; each of three processes holds two sums.
TEST_F(Training, HasTheSameHashInAWorldLargerThanMaxWorkers) {
  const std::vector<std::string> told = {"--nominal_workers=1", "--max_workers=1",
                                         "--per_device_train_batch_size=16"};
  const std::string reference = train_in_one_process("one", 1, told);
  EXPECT_EQ(train_in_processes("two", 2, told), reference);
  EXPECT_EQ(train_in_processes("three", 3, told), reference);
}

// Processes in excess of the shards would have no micro-batch and no sum.
TEST_F(Training, RejectsFewerShardsThanProcesses) {
  std::vector<std::string> arguments = {"agent", "--nproc_per_node=3", "--max_restarts=0", "--"};
  for (const std::string& flag : flags("out")) arguments.push_back(flag);
  arguments.insert(arguments.end(),
                   {"--nominal_workers=1", "--max_workers=1", "--threads=1", "--virtual_shards=2"});
  EXPECT_EQ(run(arguments), static_cast<int>(ExitCode::kUsage)) << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("3 processes, expected at most 2"));
}

TEST_F(Training, HasTheSameHashWhenKilledAndResumed) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  {
    // In a later step, as soon as checkpoint-8 is committed.
    const ScopedFault fault("checkpoint.done@7");
    EXPECT_EQ(run(flags("killed")), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(folder() / "killed/model.safetensors"));
  EXPECT_EQ(train_in_one_process("killed", 2), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-8 (step 8 of 12)"));
}

// Kernels of different instruction sets round differently.
TEST_F(Training, KeepsItsInstructionSetWhenItResumes) {
  std::string reference;
  {
    const testing::ScopedVariable isa("TILEWRIGHT_ISA", "avx2");
    reference = train_in_one_process("undisturbed", 2);
    const ScopedFault fault("checkpoint.done@7");
    EXPECT_EQ(run(flags("killed")), 128 + SIGKILL);
  }
  {
    const testing::ScopedVariable isa("TILEWRIGHT_ISA", "ref");
    EXPECT_EQ(run(flags("killed")), static_cast<int>(ExitCode::kUnsupported));
    EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-8 was written with the instruction set "
                                              "avx2, this process can use ref"));
  }
  EXPECT_EQ(train_in_one_process("killed", 2), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("threads, avx2"));
}

// The agent that serves the rendezvous reads from the command that the training is not exact.
TEST_F(Training, AHostWithAnotherInstructionSetJoinsAnInexactTraining) {
  std::ofstream(folder() / "key") << "0123456789abcdef0123456789abcdef";
  std::vector<std::string> agent = {
      "agent",
      "--nnodes=1:2",
      "--rdzv_backend=c10d",
      fmt::format("--rdzv_endpoint=localhost:{}", testing::free_port()),
      "--rdzv_key_file=" + (folder() / "key").string(),
      "--"};
  for (const std::string& flag : flags("out")) agent.push_back(flag);
  agent.insert(agent.end(), {"--exact=false", "--bf16=false", "--save_strategy=no",
                             "--max_steps=100000", "--logging_steps=1", "--threads=1"});
  RunningProgram first(testing::program("tilewright-worker"), agent, folder());
  ASSERT_TRUE(first.wait_for_output("step 1/")) << first.output();
  const testing::ScopedVariable isa("TILEWRIGHT_ISA", "ref");
  RunningProgram second(testing::program("tilewright-worker"), agent, folder());
  EXPECT_TRUE(first.wait_for_output("2 x 1 thread, ref")) << first.output() << second.output();
  for (RunningProgram* one : {&second, &first}) {
    one->send(SIGTERM);
    EXPECT_EQ(one->wait(), static_cast<int>(ExitCode::kTerminated)) << one->output();
  }
}

// Each launch has its own coordinator, which counts membership epochs from 1.
TEST_F(Training, ContinuesTheOutputOfALaunchWithManyEpochs) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  fs::create_directories(folder() / "out");
  std::ofstream(folder() / "out" / kOwnershipMarkerFile)
      << R"({"job_uid": "run-7", "epoch": 50, "writer": "1b2c"})";
  std::vector<std::string> agent = {"agent", "--nproc_per_node=2", "--rdzv_id=run-7", "--"};
  for (const std::string& flag : flags("out")) agent.push_back(flag);
  agent.emplace_back("--threads=1");
  EXPECT_EQ(run(agent), 0) << output_;
  EXPECT_EQ(digest(), reference);
  const std::regex refused(R"(\[worker 0\.0\] .*expected a later one)");
  EXPECT_EQ(std::distance(std::sregex_iterator(output_.begin(), output_.end(), refused), {}), 1)
      << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("membership epoch 51: rank 0 of 2"));
}

// As in the scripts of transformers 4, where the same command without the flag resumes. The restart
// of a job that has a UID resumes nevertheless.
TEST_F(Training, StartsAnewWithOverwriteOutputDir) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  {
    const ScopedFault fault("checkpoint.done@7");
    EXPECT_EQ(run(flags("out")), 128 + SIGKILL);
  }
  ASSERT_TRUE(fs::exists(folder() / "out/checkpoint-8"));
  {
    const ScopedFault fault("checkpoint.done@3");
    std::vector<std::string> overwriting = flags("out");
    overwriting.emplace_back("--overwrite_output_dir");
    EXPECT_EQ(run(overwriting), 128 + SIGKILL);
  }
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("resuming from")));
  EXPECT_THAT(output_, ::testing::HasSubstr(
                           "out: --overwrite_output_dir removes checkpoint-8, checkpoint-4"));
  EXPECT_EQ(train_in_one_process("out", 2), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-4 (step 4 of 12)"));
  EXPECT_EQ(train_in_one_process("out", 2, {"--overwrite_output_dir"}), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("12 steps in")) << "trained, not resumed at the end";
}

// The metric is chosen so that an early evaluation is the best one.
TEST_F(Training, HasTheSameHashOfTheBestModel) {
  const std::vector<std::string> best = {
      "--eval_strategy=steps",        "--eval_steps=3",
      "--max_eval_samples=40",        "--load_best_model_at_end",
      "--metric_for_best_model=loss", "--greater_is_better=false",
      "--save_total_limit=1",         "--group_by_length",
      "--lr_scheduler_type=cosine",   "--data_seed=5"};
  const std::string last = train_in_one_process("last", 2);
  const std::string reference = train_in_one_process("undisturbed", 2, best);
  EXPECT_NE(reference, last);
  EXPECT_THAT(output_,
              ::testing::ContainsRegex("the best model is that of step (3|6|9): eval_loss"));
  EXPECT_THAT(output_, ::testing::HasSubstr("***** eval metrics *****"));
  std::ifstream in(folder() / "undisturbed/trainer_state.json");
  const auto state = nlohmann::json::parse(in);
  EXPECT_LT(state.at("best_global_step"), 12);
  EXPECT_EQ(train_in_processes("two", 2, best), reference);
  {
    std::vector<std::string> arguments = flags("killed");
    arguments.insert(arguments.end(), best.begin(), best.end());
    const ScopedFault fault("evaluate.begin@8");
    EXPECT_EQ(run(arguments), 128 + SIGKILL) << output_;
  }
  EXPECT_EQ(train_in_one_process("killed", 2, best), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("resuming from"));
}

// The evaluation changes no weight.
TEST_F(Training, ResumesWithAnEvaluation) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  {
    const ScopedFault fault("checkpoint.done@7");
    EXPECT_EQ(run(flags("killed")), 128 + SIGKILL);
  }
  EXPECT_EQ(train_in_one_process("killed", 2,
                                 {"--do_train", "--do_eval", "--eval_strategy=steps",
                                  "--eval_steps=5", "--max_eval_samples=8"}),
            reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-8 (step 8 of 12)"));
  EXPECT_THAT(output_, ::testing::HasSubstr("***** eval metrics *****"));
}

// As of two hosts whose local files differ.
TEST_F(Training, RefusesWorkersWithOtherEvaluationData) {
  const auto write = [&](const std::string& name, const std::string& sentence) {
    std::ofstream(folder() / name) << "sentence,label\n"
                                   << sentence << ",1\nA dog sat.,0\nA dog ran.,1\n";
  };
  write("train.csv", "A cat sat.");
  write("one.csv", "A cat sat.");
  write("two.csv", "A cat ran.");
  std::ofstream(folder() / "key") << "0123456789abcdef0123456789abcdef";
  const auto start = [&](int rank, int port, const std::vector<std::string>& flags) {
    std::vector<std::string> agent = {"agent",
                                      "--nnodes=2",
                                      fmt::format("--node_rank={}", rank),
                                      "--master_addr=127.0.0.1",
                                      fmt::format("--master_port={}", port),
                                      "--rdzv_key_file=" + (folder() / "key").string(),
                                      "--",
                                      "train",
                                      "--model_name_or_path=" + testing::model_dir().string(),
                                      "--train_file=train.csv",
                                      "--output_dir=out",
                                      "--max_steps=2",
                                      "--threads=1",
                                      "--do_train"};
    agent.insert(agent.end(), flags.begin(), flags.end());
    return std::make_unique<RunningProgram>(testing::program("tilewright-worker"), agent, folder());
  };
  using Flags = std::vector<std::string>;
  const auto expect_refused = [&](const Flags& first, const Flags& second,
                                  const std::string& message) {
    const int port = testing::free_port();
    const auto agent = start(0, port, first);
    const auto other = start(1, port, second);
    const int codes[] = {agent->wait(), other->wait()};
    // The failure of one may end the other first.
    EXPECT_THAT(codes, ::testing::Contains(static_cast<int>(ExitCode::kUsage)));
    EXPECT_THAT(codes, ::testing::Each(::testing::Ne(0)));
    EXPECT_THAT(agent->output() + other->output(),
                ::testing::ContainsRegex("rank 1 has " + message +
                                         ": all workers of a job need the same flags, model and"));
  };
  expect_refused({"--do_eval", "--validation_file=one.csv"},
                 {"--do_eval", "--validation_file=two.csv"},
                 "evaluation_data = \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"");
  expect_refused({"--do_predict", "--test_file=one.csv"}, {"--do_predict", "--test_file=two.csv"},
                 "prediction_data = \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"");
  expect_refused({"--do_eval", "--validation_file=one.csv"}, {"--validation_file=one.csv"},
                 "do_eval = false, rank 0 has true");
}

TEST_F(Training, WarnsThatNoEvaluationChoseTheBestModel) {
  train_in_one_process("out", 2,
                       {"--max_steps=1", "--save_steps=2", "--eval_strategy=steps",
                        "--eval_steps=2", "--max_eval_samples=8", "--load_best_model_at_end"});
  EXPECT_THAT(output_, ::testing::HasSubstr("warning no evaluation was due in 1 step "
                                            "(--eval_strategy steps); the model is that of the "
                                            "last step"));
}

TEST_F(Training, EvaluatesAndPredictsWithASavedModel) {
  std::vector<std::string> arguments = flags("out");
  arguments.insert(arguments.end(), {"--do_train", "--do_eval"});
  ASSERT_EQ(run(arguments), 0) << output_;
  std::ifstream in(folder() / "out/eval_results.json");
  const auto results = nlohmann::json::parse(in);
  const auto hash_before = fs::last_write_time(folder() / "out/model.safetensors");
  const std::string model = "--model_name_or_path=" + (folder() / "out").string();
  ASSERT_EQ(run({"eval", model, "--task_name=MRPC", "--log_level=error",
                 "--data_dir=" + (testing::source_dir() / "examples/data/paraphrase").string()}),
            0)
      << output_;
  const auto printed = nlohmann::json::parse(output_);
  for (const char* name : {"eval_accuracy", "eval_f1", "eval_loss"}) {
    EXPECT_EQ(printed.at(name), results.at(name)) << name;
  }
  std::ofstream(folder() / "in.jsonl")
      << R"({"sentence1": "A cat sat.", "sentence2": "A cat sits."}
)"
      << R"({"sentence1": "A cat sat.", "sentence2": "Shares fell by 4%."}
)";
  ASSERT_EQ(run({"predict", model, "--input", (folder() / "in.jsonl").string()}), 0) << output_;
  std::istringstream lines(output_);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto prediction = nlohmann::json::parse(line);
    EXPECT_THAT(prediction.at("label").get<std::string>(), ::testing::HasSubstr("equivalent"));
    EXPECT_GE(prediction.at("score").get<double>(), 0.5);
  }
  EXPECT_EQ(count, 2);
  ASSERT_EQ(
      run({"predict", model, "--input", (folder() / "in.jsonl").string(), "--test_file=a.csv"}), 0)
      << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("warning --test_file: no effect with --input"));
  RunningProgram piped("/bin/sh",
                       {"-c", "echo '{\"x\": 1}' | \"$0\" predict \"$1\" --input -",
                        testing::program("tilewright-worker"), model},
                       folder());
  EXPECT_EQ(piped.wait(), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(piped.output(), ::testing::HasSubstr("standard input:1: found number as \"x\""));
  RunningProgram full_disk("/bin/sh",
                           {"-c", "exec \"$0\" predict \"$1\" --input in.jsonl > /dev/full",
                            testing::program("tilewright-worker"), model},
                           folder());
  EXPECT_EQ(full_disk.wait(), static_cast<int>(ExitCode::kOutputUnavailable)) << full_disk.output();
  EXPECT_EQ(fs::last_write_time(folder() / "out/model.safetensors"), hash_before);
}

// SIGTERM, as in an eviction: writes a checkpoint at the current step; no step runs twice.
TEST_F(Training, HasTheSameHashWhenTerminatedAndResumed) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  {
    std::vector<std::string> arguments = flags("stopped");
    arguments.push_back("--logging_first_step");
    testing::HeldPoint held(folder() / "held");
    const ScopedFault fault(held.fault("step.begin@1"));
    RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
    ASSERT_TRUE(running.wait_for_output("step 1/12"));
    running.send(SIGTERM);
    held.release();
    EXPECT_EQ(running.wait(), static_cast<int>(ExitCode::kTerminated)) << running.output();
    EXPECT_THAT(
        running.output(),
        ::testing::ContainsRegex("stopped by a signal; the same command resumes after step [1-9]"));
  }
  EXPECT_EQ(train_in_one_process("stopped", 2), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("resuming from"));
}

// What has been trained after the last checkpoint is not lost while the processes evaluate.
class Evaluation : public Training {
 protected:
  void SetUp() override {
    Training::SetUp();
    train_ = flags("out");
    train_.back() = "--do_eval=true";
    train_.insert(train_.end(), {"--do_train", "--save_strategy=no", "--threads=1"});
  }
  // Sends SIGTERM in the first evaluation. An agent says that it has it just before it passes it
  // on: for this time the batches take a second. Returns the exit code.
  int terminate(const std::vector<std::string>& arguments, const std::string& line_before) {
    testing::HeldPoint held(folder() / "held");
    const ScopedFault fault(held.fault("evaluate.begin") + ";evaluate.batch,delay=1000");
    RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
    EXPECT_TRUE(running.wait_for_output(line_before)) << running.output();
    running.send(SIGTERM);
    if (arguments.front() == "agent") {
      EXPECT_TRUE(running.wait_for_output("agent: stopping the processes"));
    }
    held.release();
    const int code = running.wait();
    output_ = running.output();
    return code;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder() / "out")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("checkpoint-")) names.push_back(name);
    }
    return names;
  }
  // The steps of the evaluations in the log history.
  std::vector<int> evaluated_steps(const std::string& directory) const {
    std::ifstream in(folder() / directory / "trainer_state.json");
    const auto state = nlohmann::json::parse(in);
    std::vector<int> steps;
    for (const auto& entry : state.at("log_history")) {
      if (entry.contains("eval_loss")) steps.push_back(entry.at("step"));
    }
    return steps;
  }

  std::vector<std::string> train_;
};

TEST_F(Evaluation, AtTheEndLeavesACheckpointOfTheLastStepWhenTerminated) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  EXPECT_EQ(terminate(train_, "trained: 12 steps"), static_cast<int>(ExitCode::kTerminated))
      << output_;
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("results:")));
  EXPECT_THAT(checkpoints(), ::testing::ElementsAre("checkpoint-12"));
  EXPECT_EQ(run(train_), 0) << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-12 (step 12 of 12)"));
  EXPECT_EQ(digest(), reference);
}

TEST_F(Evaluation, BetweenStepsLeavesACheckpointAndIsRepeated) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  train_.insert(train_.end(), {"--eval_strategy=steps", "--eval_steps=4", "--logging_steps=1"});
  EXPECT_EQ(terminate(train_, "step 4/12"), static_cast<int>(ExitCode::kTerminated)) << output_;
  EXPECT_THAT(checkpoints(), ::testing::ElementsAre("checkpoint-4"));
  EXPECT_THAT(evaluated_steps("out/checkpoint-4"), ::testing::IsEmpty());
  EXPECT_EQ(run(train_), 0) << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_THAT(evaluated_steps("out"), ::testing::ElementsAre(4, 8, 12));
}

// The alert TilewrightJobNoProgress concerns the phase training only.
TEST_F(Evaluation, BetweenStepsIsAPhaseInTheMetrics) {
  train_.insert(train_.end(), {"--eval_strategy=steps", "--eval_steps=4", "--logging_steps=1"});
  testing::HeldPoint evaluation(folder() / "evaluation"), step(folder() / "step");
  const ScopedFault fault(evaluation.fault("evaluate.begin") + ";" + step.fault("step.begin@5"));
  const int port = testing::free_port();
  const testing::ScopedVariable metrics(env::kMetricsAddress, testing::loopback_address(port));
  RunningProgram running(testing::program("tilewright-worker"), train_, folder());
  ASSERT_TRUE(running.wait_for_output("step 4/12")) << running.output();
  const auto metrics_at = [&](testing::HeldPoint& point) {
    point.wait_until_held();
    std::string scraped = testing::scrape(static_cast<std::uint16_t>(port));
    point.release();
    return scraped;
  };
  EXPECT_THAT(metrics_at(evaluation),
              ::testing::AllOf(
                  ::testing::ContainsRegex("tilewright_step[{][^}]*[}] 4\n"),
                  ::testing::ContainsRegex("tilewright_phase[{][^}]*phase=\"evaluating\"[}] 1\n")));
  EXPECT_THAT(metrics_at(step),
              ::testing::ContainsRegex("tilewright_phase[{][^}]*phase=\"training\"[}] 1\n"));
  EXPECT_EQ(running.wait(), 0) << running.output();
}

TEST_F(Evaluation, OfSeveralProcessesLeavesACheckpointWhenAllAreTerminated) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  std::vector<std::string> agent = {"agent", "--nproc_per_node=2", "--"};
  agent.insert(agent.end(), train_.begin(), train_.end());
  EXPECT_EQ(terminate(agent, "trained: 12 steps"), static_cast<int>(ExitCode::kTerminated))
      << output_;
  EXPECT_THAT(checkpoints(), ::testing::ElementsAre("checkpoint-12"));
  EXPECT_EQ(run(agent), 0) << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-12 (step 12 of 12)"));
  EXPECT_EQ(digest(), reference);
}

// Whether an evaluation has a figure for the questions with answers depends on its data.
TEST_F(Evaluation, WithoutTheMetricLeavesACheckpoint) {
  const auto write = [&](const char* name, const std::string& rest_of_question) {
    std::ofstream(folder() / name)
        << R"({"data": [{"paragraphs": [{"context": "The tower is in Paris.", "qas": [)"
        << R"({"id": "1", "question": "Where is the tower?", )" << rest_of_question << "}]}]}]}";
    return (folder() / name).string();
  };
  const std::vector<std::string> train = {
      "train",
      "--model_name_or_path=" + testing::model_dir().string(),
      "--train_file=" +
          write("train.json", R"("answers": [{"text": "Paris", "answer_start": 16}])"),
      "--validation_file=" + write("dev.json", R"("answers": [], "is_impossible": true)"),
      "--version_2_with_negative",
      "--output_dir=" + (folder() / "out").string(),
      "--do_train",
      "--do_eval",
      "--max_steps=8",
      "--eval_strategy=steps",
      "--eval_steps=4",
      "--metric_for_best_model=HasAns_f1",
      "--save_strategy=no",
      "--threads=1"};
  std::vector<std::string> agent = {"agent", "--nproc_per_node=2", "--"};
  agent.insert(agent.end(), train.begin(), train.end());
  for (const auto& command : {train, agent}) {
    fs::remove_all(folder() / "out");
    EXPECT_EQ(run(command), static_cast<int>(ExitCode::kUsage)) << output_;
    EXPECT_THAT(output_, ::testing::HasSubstr("--metric_for_best_model: found eval_HasAns_f1"));
    EXPECT_THAT(checkpoints(), ::testing::ElementsAre("checkpoint-4")) << output_;
  }
}

TEST_F(Evaluation, AloneStopsWhenTerminated) {
  train_.push_back("--save_strategy=steps");
  ASSERT_EQ(run(train_), 0) << output_;
  std::vector<std::string> evaluate = flags("results");
  evaluate[2] = "--model_name_or_path=" + (folder() / "out").string();
  evaluate.back() = "--do_eval=true";
  EXPECT_EQ(terminate(evaluate, "model"), static_cast<int>(ExitCode::kTerminated)) << output_;
  EXPECT_FALSE(fs::exists(folder() / "results/eval_results.json"));
}

TEST_F(Training, HasTheSameHashWhenKilledWhileSaving) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  for (const char* point : {"checkpoint.before_rename@7", "output.before_rename"}) {
    const std::string output = std::string("cut-") + point;
    {
      const ScopedFault fault(point);
      EXPECT_EQ(run(flags(output)), 128 + SIGKILL) << point;
    }
    EXPECT_FALSE(fs::exists(folder() / output / "checkpoint-8/checksums.json") &&
                 std::string(point).starts_with("checkpoint"));
    EXPECT_FALSE(fs::exists(folder() / output / "model.safetensors"));
    EXPECT_EQ(train_in_one_process(output, 2), reference) << point;
    for (const auto& entry : fs::directory_iterator(folder() / output)) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos)
          << entry.path() << " remains";
    }
  }
}

TEST_F(Training, CompletesThoughItsOutputIsNotRead) {
  write_manifest();
  EXPECT_EQ(testing::run_without_reader(testing::program("tilewright"),
                                        {"up", "job.yaml", "--verbose"}, folder()),
            0);
  EXPECT_TRUE(fs::exists(folder() / "up/model.safetensors"));
  EXPECT_EQ(
      testing::run_without_reader(testing::program("tilewright-worker"), flags("alone"), folder()),
      0);
  EXPECT_TRUE(fs::exists(folder() / "alone/model.safetensors"));
  std::vector<std::string> agent = {"agent", "--nproc_per_node=2", "--"};
  for (const std::string& flag : flags("agent")) agent.push_back(flag);
  EXPECT_EQ(testing::run_without_reader(testing::program("tilewright-worker"), agent, folder()), 0);
  EXPECT_TRUE(fs::exists(folder() / "agent/model.safetensors"));
}

TEST_F(Training, HasTheSameHashUnderUpWhenAWorkerIsKilled) {
  const std::string reference = train_in_one_process("undisturbed", 1);
  write_manifest({.min_replicas = 2});
  for (const char* point :
       {"step.after_backward@6,worker=1", "reduce_scatter.after_send@6,worker=0",
        "checkpoint.begin@7,worker=0"}) {
    fs::remove_all(folder() / "up");
    fs::remove_all(folder() / ".tilewright");
    const ScopedFault fault(once(point));
    EXPECT_EQ(run({"up", "job.yaml"}, "tilewright"), 0) << point << "\n" << output_;
    EXPECT_EQ(digest(), reference) << point;
    EXPECT_THAT(output_, ::testing::HasSubstr("SIGKILL")) << point;
  }
}

// Trainings whose output is on storage that fails.
class FaultyStorage : public testing::WithFaultyFileSystem<Training> {
 protected:
  fs::path output_dir() const { return storage_->path() / "out"; }
  std::vector<std::string> flags_with_storage() const {
    std::vector<std::string> arguments = flags("");
    arguments.push_back("--output_dir=" + output_dir().string());
    return arguments;
  }

  // Those of an agent with two processes.
  std::vector<std::string> agent_with_storage() const {
    std::vector<std::string> arguments = {"agent", "--nproc_per_node=2", "--"};
    for (const std::string& flag : flags_with_storage()) arguments.push_back(flag);
    arguments.emplace_back("--threads=1");
    return arguments;
  }
  static void kill_worker_1(const RunningProgram& agent) {
    const pid_t worker = child_with(agent.pid(), "LOCAL_RANK=1");
    ASSERT_GT(worker, 0);
    kill(worker, SIGKILL);
  }
  void expect_one_restart(RunningProgram& agent, const std::string& hash) {
    EXPECT_EQ(agent.wait(), 0) << agent.output();
    output_ = agent.output();
    EXPECT_EQ(digest(), hash);
    EXPECT_THAT(output_, ::testing::HasSubstr("restart 1 of 3"));
    EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("restart 2 of 3")));
  }

  // The child process that was started with a variable; 0: there is none.
  static pid_t child_with(pid_t parent, const std::string& variable) {
    for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", parent))) {
      std::ifstream children(thread.path() / "children");
      for (pid_t child = 0; children >> child;) {
        std::ifstream variables(fmt::format("/proc/{}/environ", child));
        for (std::string one; std::getline(variables, one, '\0');) {
          if (one == variable) return child;
        }
      }
    }
    return 0;
  }
};

// A full disk costs a checkpoint and a minute of waiting, not the training.
TEST_F(FaultyStorage, IsFullForAWhileAndTheHashIsTheSame) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  const std::vector<std::string> arguments = flags_with_storage();
  {
    storage_->fail("write", "ENOSPC", "/.checkpoint-4");
    testing::HeldPoint held(folder() / "held");
    const ScopedFault fault(held.fault("step.begin@10"));
    RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
    ASSERT_TRUE(running.wait_for_output("checkpoint of step 4 not written"));
    storage_->fail("write", "EIO", "/.model");
    held.release();
    ASSERT_TRUE(running.wait_for_output("Input/output error; trying again in 1 s"));
    storage_->clear();
    EXPECT_EQ(running.wait(), 0) << running.output();
    output_ = running.output();
  }
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint of step 4 not written"));
  EXPECT_THAT(output_, ::testing::HasSubstr("No space left on device; the training continues"));
  EXPECT_THAT(output_, ::testing::HasSubstr("wrote " + (output_dir() / "checkpoint-8").string()));
  EXPECT_EQ(digest(), reference);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(storage_->backing() / "out")) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr(".tmp-"))));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("checkpoint-4")));
}

// An error of the storage at a restart does not make it start again at an earlier step.
TEST_F(FaultyStorage, IsUnavailableAtARestartAndTheTrainingResumesFromTheNewestCheckpoint) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  const std::vector<std::string> arguments = flags_with_storage();
  const struct {
    const char* operation;
    const char* part;
  } kFaults[] = {{"getattr", "/out"},
                 {"getattr", "tilewright"},
                 {"readdir", "/out"},
                 {"read", "checkpoint-8/optimizer"}};
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(::testing::Message() << fault.operation << ' ' << fault.part);
    fs::remove_all(storage_->backing() / "out");
    {
      const ScopedFault kill_after_step_8("checkpoint.done@7");
      EXPECT_EQ(run(arguments), 128 + SIGKILL) << output_;
    }
    storage_->fail(fault.operation, "EIO", fault.part);
    RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
    EXPECT_TRUE(running.wait_for_output("Input/output error; trying again in 1 s"))
        << running.output();
    storage_->clear();
    EXPECT_EQ(running.wait(), 0) << running.output();
    output_ = running.output();
    EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-8 (step 8 of 12)"));
    EXPECT_EQ(digest(), reference);
  }
}

// Rank 0 writes the model again in the next membership epoch.
TEST_F(FaultyStorage, IsWrittenToAgainAfterTheLossOfAWorker) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  storage_->fail("write", "EIO", "/.model");
  RunningProgram running(testing::program("tilewright-worker"), agent_with_storage(), folder());
  ASSERT_TRUE(running.wait_for_output("Input/output error; trying again in 1 s"));
  ASSERT_NO_FATAL_FAILURE(kill_worker_1(running));
  ASSERT_TRUE(running.wait_for_output("membership epoch 2: "));
  storage_->clear();
  expect_one_restart(running, reference);
  // Rank 0 of the new epoch may have trained nothing, but its checkpoint has the time of the steps.
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("12 steps in 0.0 s")));
}

// The state in memory needs no storage before the next checkpoint.
TEST_F(FaultyStorage, IsUnavailableWhileAWorkerIsReplaced) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  std::vector<std::string> arguments = agent_with_storage();
  arguments.emplace_back("--save_steps=100");
  testing::HeldPoint held(folder() / "held");
  const ScopedFault fault(held.fault("step.begin@4"));
  RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
  held.wait_until_held();
  storage_->fail("write", "EIO", "/.tilewright");
  ASSERT_NO_FATAL_FAILURE(kill_worker_1(running));
  held.release();
  ASSERT_TRUE(running.wait_for_output("Input/output error; the training continues"))
      << running.output();
  storage_->clear();
  expect_one_restart(running, reference);
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("resuming from")));
}

TEST_F(FaultyStorage, IsTriedAgainByATrainingThatIsStopped) {
  const std::string reference = train_in_one_process("undisturbed", 2);
  std::vector<std::string> arguments = flags_with_storage();
  arguments.emplace_back("--save_steps=100");
  {
    storage_->fail("write", "EIO", "/.checkpoint-");
    testing::HeldPoint held(folder() / "held");
    const ScopedFault fault(held.fault("step.begin@5"));
    RunningProgram running(testing::program("tilewright-worker"), arguments, folder());
    held.wait_until_held();
    running.send(SIGTERM);
    held.release();
    ASSERT_TRUE(running.wait_for_output("checkpoint of step 6 not written")) << running.output();
    storage_->clear();
    EXPECT_EQ(running.wait(), 128 + SIGTERM) << running.output();
  }
  EXPECT_EQ(run(arguments), 0) << output_;
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-6 (step 6 of 12)"));
  EXPECT_EQ(digest(), reference);
}

// A training on storage that holds the first write of checkpoint-4. The training continues to the
// next save step.
class HeldCheckpoint : public FaultyStorage {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(FaultyStorage::SetUp());
    if (IsSkipped()) return;
    arguments_ = flags_with_storage();
    arguments_.insert(arguments_.end(),
                      {"--save_steps=2", "--save_total_limit=0", "--logging_steps=1"});
    reference_ = train_in_one_process("undisturbed", 2);
    storage_->hold("write", "/.checkpoint-4");
    running_.emplace(testing::program("tilewright-worker"), arguments_, folder());
    ASSERT_TRUE(storage_->wait_until_held());
    ASSERT_TRUE(running_->wait_for_output("step 5/12")) << running_->output();
    ASSERT_THAT(running_->output(), ::testing::Not(::testing::HasSubstr("checkpoint-4")));
  }
  // A process in a held operation does not end.
  void TearDown() override {
    if (storage_) storage_->release();
  }
  std::vector<std::string> written() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(storage_->backing() / "out")) {
      if (entry.path().filename().string().starts_with("checkpoint-") ||
          entry.path().filename().string().find(".tmp-") != std::string::npos) {
        names.push_back(entry.path().filename());
      }
    }
    std::ranges::sort(names);
    return names;
  }
  void expect_same_hash_when_resumed() {
    EXPECT_EQ(run(arguments_), 0) << output_;
    EXPECT_EQ(digest(), reference_);
  }

  std::optional<RunningProgram> running_;
  std::vector<std::string> arguments_;
  std::string reference_;
};

TEST_F(HeldCheckpoint, IsAbsentAfterAKillAndTheTrainingResumesFromTheOneBefore) {
  running_->send(SIGKILL);
  storage_->release();
  EXPECT_EQ(running_->wait(), 128 + SIGKILL);
  EXPECT_THAT(written(),
              ::testing::ElementsAre(::testing::StartsWith(".checkpoint-4.tmp-"), "checkpoint-2"));
  expect_same_hash_when_resumed();
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-2 (step 2 of 12)"));
  EXPECT_THAT(written(), ::testing::Not(::testing::Contains(::testing::HasSubstr(".tmp-"))));
}

TEST_F(HeldCheckpoint, IsCompleteWhenTheProcessIsTerminated) {
  running_->send(SIGTERM);
  storage_->release();
  EXPECT_EQ(running_->wait(), static_cast<int>(ExitCode::kTerminated)) << running_->output();
  std::vector<std::string> wrote;  // as the log says
  const std::string said = running_->output();
  const std::regex line("wrote [^\n]*/(checkpoint-[0-9]+) in ");
  for (std::sregex_iterator at(said.begin(), said.end(), line), end; at != end; ++at) {
    wrote.push_back((*at)[1]);
  }
  ASSERT_GE(wrote.size(), 3u) << said;
  EXPECT_EQ(wrote[0], "checkpoint-2");
  EXPECT_EQ(wrote[1], "checkpoint-4");
  EXPECT_THAT(written(), ::testing::UnorderedElementsAreArray(wrote));
  expect_same_hash_when_resumed();
  EXPECT_THAT(output_, ::testing::HasSubstr(wrote.back() + " (step "));
}

// The volume with the checkpoints is not the one that the job wrote to.
TEST_F(Training, UpRefusesToStartAgainWithoutTheLastCheckpoint) {
  write_manifest({.max_steps = 10000});
  {
    RunningProgram up(testing::program("tilewright"), {"up", "job.yaml"}, folder());
    // Several heartbeats after checkpoint-4, as save_steps is 4.
    ASSERT_TRUE(up.wait_for_output("30/10000"));
    up.send(SIGINT);
    EXPECT_EQ(up.wait(), static_cast<int>(ExitCode::kInterrupted)) << up.output();
  }
  fs::remove_all(folder() / "up");
  EXPECT_EQ(run({"up", "job.yaml"}, "tilewright"), static_cast<int>(ExitCode::kJobFailed));
  EXPECT_THAT(output_, ::testing::ContainsRegex("up: found no valid checkpoint, expected "
                                                "checkpoint-[0-9]+"));
  EXPECT_THAT(output_, ::testing::HasSubstr("start over with --replace"));
  EXPECT_FALSE(fs::exists(folder() / "up/.tilewright-job.json"));
}

TEST_F(Training, WritesTheFilesThatTransformersLoads) {
  std::vector<std::string> arguments = flags("out");
  arguments.back() = "--do_eval=true";
  arguments.emplace_back("--do_train=true");
  ASSERT_EQ(run(arguments), 0) << output_;
  for (const char* file :
       {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "all_results.json",
        "train_results.json", "eval_results.json", "trainer_state.json"}) {
    EXPECT_TRUE(fs::exists(folder() / "out" / file)) << file;
  }
  std::ifstream in(folder() / "out/all_results.json");
  const auto results = nlohmann::json::parse(in);
  EXPECT_GT(results.at("eval_accuracy").get<double>(), 0.0);
  EXPECT_LE(results.at("eval_accuracy").get<double>(), 1.0);
  EXPECT_GT(results.at("train_loss").get<double>(), 0.0);
}

TEST_F(Training, RejectsBadFlagsAndLeavesNothing) {
  struct Bad {
    const char* flag;
    ExitCode code;
    const char* said;
  };
  const Bad bads[] = {
      {"--model_name_or_path=no/such/folder", ExitCode::kModel, "no/such/folder"},
      {"--data_dir=nowhere", ExitCode::kData, "nowhere"},
      {"--learning_rats=1", ExitCode::kUsage, "learning_rate"},
      {"--virtual_shards=64", ExitCode::kUsage, "64"},
      {"--virtual_shards=6", ExitCode::kUsage, "6"},
      {"--output_dir=/proc/tilewright", ExitCode::kOutput, "/proc"},
  };
  for (const Bad& bad : bads) {
    std::vector<std::string> arguments = flags("bad");
    arguments.emplace_back(bad.flag);
    EXPECT_EQ(run(arguments), static_cast<int>(bad.code)) << bad.flag << "\n" << output_;
    EXPECT_THAT(output_, ::testing::HasSubstr(bad.said));
    EXPECT_FALSE(fs::exists(folder() / "bad")) << bad.flag;
  }
}

// Padding adds computation but does not change the loss.
TEST_F(Training, PaddingDoesNotChangeTheLoss) {
  struct Seen {
    std::int64_t rows = 0, tokens = 0;
    double train_loss = 0, eval_loss = 0, flos = 0;
  };
  const auto train = [&](const std::string& output, bool padded) {
    std::vector<std::string> arguments = flags(output);
    arguments.back() = "--do_eval=true";
    arguments.insert(arguments.end(),
                     {"--do_train=true", "--per_device_train_batch_size=16", "--max_steps=3",
                      "--max_seq_length=36", "--max_train_samples=96", "--max_eval_samples=40"});
    arguments.emplace_back("--log_level=debug");
    if (padded) arguments.emplace_back("--pad_to_max_length");
    EXPECT_EQ(run(arguments), 0) << output_;
    Seen seen;
    std::smatch match;
    const std::regex pattern("computed (\\d+) rows for (\\d+) tokens");
    if (!std::regex_search(output_, match, pattern)) {
      ADD_FAILURE() << output_;
      return seen;
    }
    seen.rows = std::stoll(match[1]);
    seen.tokens = std::stoll(match[2]);
    std::ifstream in(folder() / output / "all_results.json");
    const auto results = nlohmann::json::parse(in);
    seen.train_loss = results.at("train_loss").get<double>();
    seen.eval_loss = results.at("eval_loss").get<double>();
    seen.flos = results.at("total_flos").get<double>();
    return seen;
  };
  const Seen packed = train("packed", false);
  const Seen padded = train("padded", true);
  EXPECT_EQ(packed.rows, packed.tokens);
  EXPECT_EQ(padded.tokens, packed.tokens);
  EXPECT_EQ(padded.rows, 3 * 32 * 36);
  EXPECT_GT(padded.rows, padded.tokens);
  EXPECT_EQ(padded.flos, packed.flos);
  // The first loss is bitwise equal. Then the weights differ by the rounding errors of their
  // gradients; per update, AdamW can amplify these to half a bf16 unit round-off (2^-8 / 2) of a
  // weight.
  EXPECT_NEAR(padded.train_loss, packed.train_loss, 2 * 0x1p-9 * packed.train_loss);
  EXPECT_NEAR(padded.eval_loss, packed.eval_loss, 3 * 0x1p-9 * packed.eval_loss);
}

TEST_F(Training, RejectsAnotherJobsOutputFolder) {
  train_in_one_process("mine", 2);
  std::vector<std::string> arguments = flags("mine");
  arguments.emplace_back("--seed=7");
  EXPECT_EQ(run(arguments), static_cast<int>(ExitCode::kOutput));
  EXPECT_THAT(output_, ::testing::HasSubstr("overwrite_output_dir"));
}

}  // namespace
}  // namespace tilewright
