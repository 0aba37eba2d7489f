// `tilewright up` with shell scripts for workers: what users see, what stays, who survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/exit_codes.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunningProgram;
using testing::Watched;

constexpr int code(ExitCode exit_code) { return static_cast<int>(exit_code); }

// A folder with a manifest, its volumes and a worker script, in which `up` is run.
class Up : public ::testing::Test {
 protected:
  Up() {
    fs::create_directories(folder() / "models/tiny");
    fs::create_directories(folder() / "data/pairs");
    manifest();
  }

  const fs::path& folder() const { return temporary_.path(); }
  void write(const fs::path& name, const std::string& text) const {
    std::ofstream(folder() / name) << text;
  }

  // A job of two workers; `policies` are lines of spec, `worker` of spec.worker.
  void manifest(const std::string& policies = "", const std::string& worker = "",
                const std::string& name = "name: job") const {
    write("job.yaml", R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {)" + name + R"(}
spec:
)" + policies + R"(
  trainer:
    task: mrpc
    model: models:tiny
    data: data:pairs
    output: output:$(TILEWRIGHT_JOB_NAME)
    num_train_epochs: 2
  worker:
    replicas: 2
    resources: {cpu: 1, memory: 1Gi}
)" + worker + R"(
  volumes:
    - {name: models, local: models}
    - {name: data, local: data}
    - {name: output, local: results}
)");
  }

  // In a worker, $I is its index and $T the test's folder.
  void worker(const std::string& script) const {
    write("worker.sh",
          "#!/bin/sh\nI=$TILEWRIGHT_WORKER_INDEX\nT=" + folder().string() + "\n" + script + "\n");
    fs::permissions(folder() / "worker.sh", fs::perms::owner_all);
  }

  // Blocks for ever without burning the CPU, as one process: no shell stays behind it.
  static constexpr const char* kIdle = "exec tail -f /dev/null";

  RunningProgram start(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"up", "job.yaml", "--worker_binary", "./worker.sh"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunningProgram(testing::program("tilewright"), arguments, folder());
  }

  nlohmann::json job(const std::string& name = "job") const {
    return nlohmann::json::parse(testing::read_text(folder() / ".tilewright" / name / "job.json"));
  }
  nlohmann::json status() const { return job()["status"]; }

  pid_t pid_of(int index) const {
    return std::stoi(testing::read_text(folder() / ("pid-" + std::to_string(index))));
  }

 private:
  testing::TemporaryDirectory temporary_;
};

TEST_F(Up, RunsAJobToItsEnd) {
  manifest("", "    env: [{name: GREETING, value: 'index $(TILEWRIGHT_WORKER_INDEX), $$5'}]");
  worker("echo \"$GREETING\"; echo \"args $*\"; printf 'no line end'");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("worker-0 | index 0, $5\n"));
  EXPECT_THAT(up.output(), HasSubstr("worker-1 | index 1, $5\n"));
  EXPECT_THAT(up.output(), HasSubstr("worker-1 | no line end\n"));
  EXPECT_THAT(up.output(),
              HasSubstr("worker-0 | args train --task_name=mrpc --model_name_or_path=" +
                        (folder() / "models/tiny").string()));
  EXPECT_THAT(up.output(), HasSubstr("--output_dir=" + (folder() / "results/job").string()));
  EXPECT_THAT(up.output(), HasSubstr("job job succeeded: the training is complete"));
  EXPECT_THAT(up.output(), HasSubstr("output: " + (folder() / "results/job").string()));
  EXPECT_THAT(up.output(), HasSubstr("logs: " + (folder() / ".tilewright/job/logs").string()));
  EXPECT_THAT(up.output(), Not(HasSubstr("\033"))) << "no colours where there is no terminal";
  EXPECT_THAT(testing::read_text(folder() / ".tilewright/job/logs/job-worker-1.log"),
              HasSubstr("index 1, $5\nargs "));
  EXPECT_EQ(status()["phase"], "Succeeded");
  EXPECT_TRUE(fs::is_directory(folder() / "results"));
}

TEST_F(Up, TellsEachWorkerWhatItIs) {
  worker(R"sh(
    test -n "$TILEWRIGHT_RENDEZVOUS" || exit 1
    test "$TILEWRIGHT_JOB_NAME" = job || exit 2
    test "$(stat -c %a "$TILEWRIGHT_JOB_KEY_FILE")" = 600 || exit 3
    test "$(wc -c < "$TILEWRIGHT_JOB_KEY_FILE")" = 64 || exit 4
    read pid name state parent group rest < /proc/self/stat
    test $group = $$ || exit 5
    echo "uid $TILEWRIGHT_JOB_UID")sh");
  manifest("", "    restartPolicy: Never");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(),
              HasSubstr("worker-0 | uid " + job()["metadata"]["uid"].get<std::string>()));
}

TEST_F(Up, StartsAFailedWorkerAgain) {
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  worker(R"sh(
    if [ $I = 0 ]; then read line < $T/fifo; exit 0; fi
    if mkdir $T/failed 2>/dev/null; then echo dying; exit 1; fi
    echo > $T/fifo)sh");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("worker 1 (job-worker-1 on "));
  EXPECT_THAT(up.output(), HasSubstr("ended with exit code 1"));
  EXPECT_THAT(up.output(), HasSubstr("restarts: 1 of the program"));
  EXPECT_EQ(status()["restarts"]["program"], 1);
  ASSERT_EQ(status()["failures"].size(), 1U);
  EXPECT_EQ(status()["failures"][0]["exitCode"], 1);
  EXPECT_EQ(status()["failures"][0]["lastLines"][0], "dying");
}

TEST_F(Up, StartsAKilledWorkerAgain) {
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  worker(R"sh(
    if [ $I = 1 ]; then read line < $T/fifo; exit 0; fi
    if mkdir $T/failed 2>/dev/null; then kill -9 $$; fi
    echo > $T/fifo)sh");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("was ended by signal 9 (SIGKILL)"));
  EXPECT_EQ(status()["failures"][0]["signal"], 9);
}

TEST_F(Up, GivesUpAfterMaxRestarts) {
  manifest("  elasticPolicy: {maxRestarts: 1}");
  worker("if [ $I = 0 ]; then exit 5; fi; " + std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("1 of 1 restarts are used up"));
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_EQ(status()["restarts"]["program"], 1);
}

TEST_F(Up, StopsEverybodyAtAPermanentFailure) {
  manifest("", "    restartPolicy: ExitCode");
  worker(
      "echo $$ > $T/pid-$I; if [ $I = 1 ]; then while [ ! -s $T/pid-0 ]; do :; done; "
      "echo 'no such model'; exit 11; fi; " +
      std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("restartPolicy ExitCode takes for permanent"));
  EXPECT_THAT(up.output(), HasSubstr("up       |   no such model"));
  EXPECT_EQ(kill(pid_of(0), 0), -1) << "worker 0 is gone";
}

TEST_F(Up, StopsOnCtrlCAndResumesTheSameJob) {
  worker(R"(
    if [ -e $T/second ]; then exit 0; fi
    trap 'echo stopping by order; exit 143' TERM
    echo here; while :; do read line < $T/fifo; done)");
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  std::string uid;
  {
    RunningProgram up = start();
    up.say("worker-0 | here");
    up.say("worker-1 | here");
    up.send(SIGINT);
    EXPECT_EQ(up.wait(), code(ExitCode::kInterrupted));
    EXPECT_THAT(up.output(), HasSubstr("worker-0 | stopping by order"));
    EXPECT_THAT(up.output(), HasSubstr("worker-1 | stopping by order"));
    EXPECT_THAT(up.output(), HasSubstr("`tilewright up job.yaml --name job` resumes it"));
    EXPECT_EQ(status()["phase"], "Suspended");
    uid = job()["metadata"]["uid"];
  }
  write("second", "");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_EQ(job()["metadata"]["uid"], uid);
  EXPECT_EQ(status()["phase"], "Succeeded");
  EXPECT_EQ(status().value("failures", nlohmann::json::array()).size(), 0U);
}

TEST_F(Up, StopsOnSigterm) {
  worker("echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.say("worker-0 | here");
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, StopsAtOnceOnTheSecondCtrlC) {
  worker("trap '' TERM; echo here; " + std::string(kIdle));  // deaf to SIGTERM
  RunningProgram up = start();
  up.say("worker-0 | here");
  up.say("worker-1 | here");
  up.send(SIGINT);
  up.say("once more stops them at once");
  up.send(SIGINT);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(up.wait(), code(ExitCode::kInterrupted));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(25))
      << "the grace period is 30 s";
}

TEST_F(Up, KillsAWorkerThatOutlivesItsGrace) {
  manifest("", "    terminationGracePeriodSeconds: 1");
  worker("trap '' TERM; echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.say("worker-0 | here");
  up.say("worker-1 | here");
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, LeavesNoWorkerBehindWhenItIsKilled) {
  worker("echo $$ > $T/pid-$I; echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.say("worker-0 | here");
  up.say("worker-1 | here");
  const Watched first(pid_of(0));
  const Watched second(pid_of(1));
  up.send(SIGKILL);
  EXPECT_EQ(up.wait(), 128 + SIGKILL);
  EXPECT_TRUE(first.ends());
  EXPECT_TRUE(second.ends());
}

TEST_F(Up, GoesOnAfterItWasKilled) {
  worker("if [ -e $T/second ]; then exit 0; fi; echo here; " + std::string(kIdle));
  std::string uid;
  {
    RunningProgram up = start();
    up.say("worker-0 | here");
    up.say("worker-1 | here");
    uid = job()["metadata"]["uid"];
    up.send(SIGKILL);
    up.wait();
  }
  write("second", "");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("going on with job job"));
  EXPECT_EQ(job()["metadata"]["uid"], uid);
}

TEST_F(Up, KillsWhatAWorkerLeftBehind) {
  worker(
      "if [ $I = 0 ]; then tail -f /dev/null & echo $! > $T/pid-0; while [ ! -e $T/go ]; do "
      "read x < $T/fifo; done; fi");
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  RunningProgram up = start();
  // Opening the pipe for writing waits for the worker's reading: its child has been started.
  { std::ofstream(folder() / "fifo") << "x\n"; }
  const Watched child(pid_of(0));
  write("go", "");
  { std::ofstream(folder() / "fifo") << "x\n"; }
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_TRUE(child.ends());
}

TEST_F(Up, WaitsWhileSuspendedAndGoesOnWhenTold) {
  manifest("  runPolicy: {suspend: true}");
  worker("echo ran");
  RunningProgram up = start();
  up.say("kill -USR1");
  EXPECT_EQ(status()["phase"], "Suspended");
  EXPECT_THAT(up.output(), Not(HasSubstr("ran\n")));
  manifest("  runPolicy: {suspend: false}");
  up.send(SIGUSR1);
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("worker-0 | ran"));
  EXPECT_EQ(status()["observedGeneration"], 2);
}

TEST_F(Up, EndsAJobAtItsDeadline) {
  manifest("  runPolicy: {activeDeadlineSeconds: 1}");
  worker(kIdle);
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("longer than its activeDeadlineSeconds of 1"));
}

TEST_F(Up, StopsEverybodyAtTheEndWhateverCleanPodPolicySays) {
  manifest("  runPolicy: {cleanPodPolicy: None}", "    restartPolicy: Never");
  worker("if [ $I = 1 ]; then exit 1; fi; " + std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
}

TEST_F(Up, GivesEachRunANameOfItsOwnWhereAskedTo) {
  manifest("", "", "generateName: run-");
  worker("echo \"name $TILEWRIGHT_JOB_NAME\"");
  for (int run = 0; run < 2; ++run) {
    RunningProgram up = start();
    EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  }
  std::set<std::string> uids;
  for (const auto& entry : fs::directory_iterator(folder() / ".tilewright")) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::MatchesRegex("run-[a-z0-9]{5}"));
    uids.insert(job(entry.path().filename())["metadata"]["uid"]);
  }
  EXPECT_EQ(uids.size(), 2U);
}

TEST_F(Up, RunsAFinishedJobAnewOnlyWhenAskedTo) {
  worker("exit 0");
  EXPECT_EQ(start().wait(), code(ExitCode::kOk));
  const std::string uid = job()["metadata"]["uid"];
  RunningProgram again = start();
  EXPECT_EQ(again.wait(), code(ExitCode::kUsage));
  EXPECT_THAT(again.output(), HasSubstr("job job has already succeeded"));
  EXPECT_THAT(again.output(), HasSubstr("--replace"));
  EXPECT_EQ(job()["metadata"]["uid"], uid);
  EXPECT_EQ(start({"--replace"}).wait(), code(ExitCode::kOk));
  EXPECT_NE(job()["metadata"]["uid"], uid);
}

TEST_F(Up, KeepsASecondOneOut) {
  worker("echo here; " + std::string(kIdle));
  RunningProgram first = start();
  first.say("worker-0 | here");
  RunningProgram second = start();
  EXPECT_EQ(second.wait(), code(ExitCode::kUsage));
  EXPECT_THAT(second.output(), HasSubstr("run by another `tilewright up`"));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, RefusesWhatCannotRunInOneSentenceAndLeavesNothingBehind) {
  worker("exit 0");
  const auto expect_refused = [&](ExitCode exit_code, const std::string& sentence,
                                  const std::vector<std::string>& more = {}) {
    RunningProgram up = start(more);
    EXPECT_EQ(up.wait(), code(exit_code)) << up.output();
    EXPECT_THAT(up.output(), HasSubstr(sentence));
    EXPECT_FALSE(fs::exists(folder() / ".tilewright"));
  };
  manifest("", "    replica: 3");
  expect_refused(ExitCode::kManifest, "replicas");
  manifest();
  fs::rename(folder() / "models", folder() / "elsewhere");
  expect_refused(ExitCode::kModel, "spec.trainer.model: models:tiny is ");
  fs::rename(folder() / "elsewhere", folder() / "models");
  fs::remove_all(folder() / "data/pairs");
  expect_refused(ExitCode::kData, "spec.trainer.data: data:pairs is ");
  fs::create_directories(folder() / "data/pairs");
  write("results", "a file where the folder should be");
  expect_refused(ExitCode::kOutput, "the volume output is ");
  fs::remove(folder() / "results");
  fs::remove(folder() / "worker.sh");
  expect_refused(ExitCode::kUsage, "--worker_binary: ./worker.sh is no program");
  fs::remove(folder() / "job.yaml");
  expect_refused(ExitCode::kManifest, "job.yaml");
}

}  // namespace
}  // namespace tilewright
