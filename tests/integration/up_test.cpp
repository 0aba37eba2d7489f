// Tests of `tilewright up` with shell scripts as workers: output, state directory, restarts,
// signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/exit_codes.h"
#include "common/base/file_descriptor.h"
#include "common/process/signals.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProcessExitWatch;
using testing::RunningProgram;

constexpr int code(ExitCode exit_code) { return static_cast<int>(exit_code); }

// A directory with a manifest, its volumes and a worker script, in which `up` runs.
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

  // A job of two workers; `policies` are lines of spec, `worker` lines of spec.worker.
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

  // In the script, $I is the worker's index and $T the directory of the test.
  void worker(const std::string& script) const {
    write("worker.sh",
          "#!/bin/sh\nI=$TILEWRIGHT_WORKER_INDEX\nT=" + folder().string() + "\n" + script + "\n");
    fs::permissions(folder() / "worker.sh", fs::perms::owner_all);
  }

  // Blocks forever in a single process (no shell as parent) without CPU use.
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
  EXPECT_THAT(up.output(), HasSubstr("job       job: mrpc, 2 workers (.tilewright/job)\n"));
  EXPECT_THAT(up.output(), HasSubstr("succeeded job job: "));
  EXPECT_THAT(up.output(), HasSubstr("output    results/job\n"));
  EXPECT_THAT(up.output(), HasSubstr("logs      .tilewright/job/logs\n"));
  EXPECT_THAT(up.output(), Not(HasSubstr("\033"))) << "colors without a terminal";
  EXPECT_THAT(testing::read_text(folder() / ".tilewright/job/logs/job-worker-1.log"),
              HasSubstr("index 1, $5\nargs "));
  EXPECT_EQ(status()["phase"], "Succeeded");
  EXPECT_TRUE(fs::is_directory(folder() / "results"));
}

constexpr const char* kHash = "adb6c031000d032cb8de5f2d6e9274e1406f60ca4ead746cf17ebfbade5ef9c8";

// The log lines of a training of two workers without failures.
const std::string kTrainingLog = R"sh(
    log() { echo "2026-11-22T19:42:57.977 $1"; }
    if [ $I = 1 ]; then log 'debug membership epoch 1: rank 1 of 2'; exit 0; fi
    log 'info membership epoch 1: rank 0 of 2'
    log 'info machine: AMD EPYC, 2 x 1 thread, avx512_bf16, peak 2 x 493 GFLOP/s'
    log 'info data: 642 examples, 180 for evaluation'
    log 'info model: bert, 6 layers, hidden size 384, 22.7 M parameters'
    log 'info training: 168 steps of 32 examples in 8 shards, exact'
    log 'info kernels: forward avx512_bf16, attention avx512_bf16'
    for step in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
      log "info step $step/15  epoch 1.00  loss 0.1323  lr 3.45e-05  255.8 examples/s"
    done
    log 'info checkpoint checkpoint-15 written in 1.0 s'
    log 'info trained: 168 steps in 23 s'
    log 'info results: accuracy 0.8056, f1 0.8168; loss 0.7040; 180 examples'
    log 'info baselines: majority 0.5000, word overlap 0.5722'
    log 'info output: results/job'
    log 'info output: SHA-256 )sh" +
                                 std::string(kHash) + "'";

// What a terminal shows at the end: "\r\033[K" deletes the last line.
std::string final_screen(const std::string& output) {
  std::string screen;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output.compare(i, 4, "\r\033[K") == 0) {
      screen.resize(screen.rfind('\n') + 1);
      i += 3;
    } else if (output[i] != '\r') {
      screen += output[i];
    }
  }
  return screen;
}

TEST_F(Up, PrintsAtMostFifteenLinesOnATerminal) {
  worker(kTrainingLog);
  for (const std::string columns : {"80", "120"}) {
    // script(1) runs the command on a pseudo-terminal.
    const std::string command = "unset NO_COLOR; export TERM=xterm; stty cols " + columns +
                                "; exec " + testing::program("tilewright").string() +
                                " up job.yaml --replace --worker_binary ./worker.sh";
    RunningProgram up("/usr/bin/script",
                      {"--quiet", "--return", "--command", command, folder() / "typescript"},
                      folder());
    EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
    const std::string screen = final_screen(up.output());
    EXPECT_LE(std::ranges::count(screen, '\n'), 15) << screen;
    EXPECT_THAT(screen, HasSubstr("\033[1;36mdata      \033[0m642 examples, 180 for evaluation\n"));
    EXPECT_THAT(screen, HasSubstr(kHash));
    EXPECT_THAT(screen, HasSubstr("\033[32mjob job\033[0m\n"));
    EXPECT_THAT(screen, Not(HasSubstr("epoch 1"))) << "step and membership lines";
    EXPECT_THAT(screen, Not(HasSubstr("kernels")));
    EXPECT_THAT(testing::read_text(folder() / ".tilewright/job/logs/job-worker-0.log"),
                HasSubstr("info kernels: forward"));
  }
}

TEST_F(Up, PrintsStepLinesWithoutATerminal) {
  worker(kTrainingLog);
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("\ntraining  168 steps of 32 examples in 8 shards, exact\n"));
  EXPECT_THAT(up.output(), HasSubstr("\nstep      7/15  epoch 1.00  loss 0.1323  lr 3.45e-05  "));
  EXPECT_THAT(up.output(), Not(HasSubstr("kernels")));
  EXPECT_THAT(up.output(), Not(HasSubstr("worker-")));
}

TEST_F(Up, PrintsEveryLineWithVerbose) {
  worker(kTrainingLog);
  RunningProgram up = start({"--verbose"});
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("\nworker-0 | 2026-11-22T19:42:57.977 info kernels: forward"));
  EXPECT_THAT(up.output(),
              HasSubstr("\nworker-1 | 2026-11-22T19:42:57.977 debug membership epoch"));
  EXPECT_THAT(up.output(), Not(HasSubstr("\ndata ")));
}

TEST_F(Up, PrintsWarningsAndErrorsOfEveryWorker) {
  worker(
      "echo \"2026-11-22T19:42:57.977 warning disk $I is slow\"; "
      "echo \"2026-11-22T19:42:57.977 error disk $I is full\"");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  for (const char* line :
       {"worker-0 | warning: disk 0 is slow\n", "worker-1 | error: disk 1 is full\n"}) {
    EXPECT_THAT(up.output(), HasSubstr(line));
  }
}

TEST_F(Up, SetsTheEnvironmentOfEachWorker) {
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

TEST_F(Up, RestartsAFailedWorker) {
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  worker(R"sh(
    if [ $I = 0 ]; then read line < $T/fifo; exit 0; fi
    if mkdir $T/failed 2>/dev/null; then echo dying; exit 1; fi
    echo > $T/fifo)sh");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("worker 1 (job-worker-1 on "));
  EXPECT_THAT(up.output(), HasSubstr("exited with code 1"));
  EXPECT_THAT(up.output(), HasSubstr("restarts  1: 1 after program errors"));
  EXPECT_EQ(status()["restarts"]["program"], 1);
  ASSERT_EQ(status()["failures"].size(), 1U);
  EXPECT_EQ(status()["failures"][0]["exitCode"], 1);
  EXPECT_EQ(status()["failures"][0]["lastLines"][0], "dying");
}

TEST_F(Up, RestartsAKilledWorker) {
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  worker(R"sh(
    if [ $I = 1 ]; then read line < $T/fifo; exit 0; fi
    if mkdir $T/failed 2>/dev/null; then kill -9 $$; fi
    echo > $T/fifo)sh");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("was killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(status()["failures"][0]["signal"], 9);
}

TEST_F(Up, GivesUpAfterMaxRestarts) {
  manifest("  elasticPolicy: {maxRestarts: 1}");
  worker("if [ $I = 0 ]; then exit 5; fi; " + std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
  EXPECT_THAT(up.output(), HasSubstr("1 of 1 restarts are used"));
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_EQ(status()["restarts"]["program"], 1);
}

TEST_F(Up, StopsAllWorkersAtAPermanentFailure) {
  manifest("", "    restartPolicy: ExitCode");
  worker(
      "echo $$ > $T/pid-$I; if [ $I = 1 ]; then while [ ! -s $T/pid-0 ]; do :; done; "
      "echo 'reading the model'; echo 'no such model'; exit 11; fi; " +
      std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
  EXPECT_THAT(
      up.output(),
      HasSubstr("exited with code 11 (no such model); restartPolicy ExitCode does not retry "
                "codes below 128\n          reading the model\n"));
  EXPECT_THAT(up.output(), Not(HasSubstr("warning   worker 1")));
  EXPECT_EQ(kill(pid_of(0), 0), -1) << "worker 0 still runs";
}

TEST_F(Up, StopsOnCtrlCAndResumesTheSameJob) {
  worker(R"(
    if [ -e $T/second ]; then exit 0; fi
    trap 'echo stopping on SIGTERM; exit 143' TERM
    echo here; while :; do read line < $T/fifo; done)");
  ASSERT_EQ(mkfifo((folder() / "fifo").c_str(), 0600), 0);
  std::string uid;
  {
    RunningProgram up = start();
    up.wait_for_output("worker-0 | here");
    up.wait_for_output("worker-1 | here");
    up.send(SIGINT);
    EXPECT_EQ(up.wait(), code(ExitCode::kInterrupted));
    EXPECT_THAT(up.output(), HasSubstr("worker-0 | stopping on SIGTERM"));
    EXPECT_THAT(up.output(), HasSubstr("worker-1 | stopping on SIGTERM"));
    EXPECT_THAT(
        up.output(),
        HasSubstr("`tilewright up job.yaml --name job --worker_binary ./worker.sh` resumes it"));
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

// The text between the backquotes of the last message.
std::string resume_command(const std::string& output) {
  const auto end = output.rfind("` resumes it");
  if (end == std::string::npos) return "";
  const auto begin = output.rfind('`', end - 1) + 1;
  return output.substr(begin, end - begin);
}

TEST_F(Up, PrintsTheCommandThatResumesTheJob) {
  worker("[ ! -e $T/second ] || exit 0; echo here; " + std::string(kIdle));
  fs::rename(folder() / "job.yaml", folder() / "it's $HOME.yaml");
  const auto read_job = [&] {
    return nlohmann::json::parse(testing::read_text(folder() / "the state/p/job.json"));
  };
  std::string command;
  std::string uid;
  {
    RunningProgram up(testing::program("tilewright"),
                      {"up", "it's $HOME.yaml", "--state_dir", "the state", "--name", "p",
                       "--worker_binary", "./worker.sh"},
                      folder());
    up.wait_for_output("worker-0 | here");
    up.send(SIGINT);
    EXPECT_EQ(up.wait(), code(ExitCode::kInterrupted));
    command = resume_command(up.output());
    uid = read_job()["metadata"]["uid"];
  }
  write("second", "");
  const std::string path = testing::program("tilewright").parent_path().string();
  RunningProgram again("/bin/sh", {"-c", "PATH=" + path + ":$PATH; " + command}, folder());
  EXPECT_EQ(again.wait(), code(ExitCode::kOk)) << command << "\n" << again.output();
  EXPECT_EQ(read_job()["metadata"]["uid"], uid) << command;
  EXPECT_EQ(read_job()["status"]["phase"], "Succeeded") << command;
  EXPECT_FALSE(fs::exists(folder() / ".tilewright")) << command;
}

TEST_F(Up, StopsOnSigterm) {
  worker("echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.wait_for_output("worker-0 | here");
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, IsEndedBySigtermWhileItWaitsForTheManifest) {
  fs::remove(folder() / "job.yaml");
  ASSERT_EQ(mkfifo((folder() / "job.yaml").c_str(), 0600), 0);
  RunningProgram up = start();
  // Returns once `up` has opened the pipe to read it.
  const FileDescriptor writer(open((folder() / "job.yaml").c_str(), O_WRONLY | O_CLOEXEC));
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), 128 + SIGTERM) << up.output();
  EXPECT_FALSE(fs::exists(folder() / ".tilewright"));
}

TEST_F(Up, WritesItsOutputIntoNoOtherFileIfStandardOutputIsClosed) {
  worker("echo here");
  RunningProgram up("/bin/sh",
                    {"-c", "exec \"$0\" \"$@\" <&- >&-", testing::program("tilewright"), "up",
                     "job.yaml", "--worker_binary", "./worker.sh"},
                    folder());
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_EQ(testing::read_text(folder() / ".tilewright/job/tilewright-up.lock"), "");
}

// timeout(1) sends its signal to the program and to the process group.
TEST_F(Up, TwoSignalsOfOneRequestKillNothing) {
  worker("trap 'echo saved; exit 0' TERM; echo here; tail -f /dev/null & wait");
  RunningProgram up = start();
  up.wait_for_output("worker-0 | here");
  up.wait_for_output("worker-1 | here");
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) up.send(SIGTERM);
  up.wait_for_output("a second signal kills them");
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), code(ExitCode::kTerminated)) << up.output();
  // On a busy machine the last signal may have been read later, as a second request.
  if (std::chrono::steady_clock::now() - before >= kSameRequest) return;
  for (const char* saved : {"worker-0 | saved", "worker-1 | saved"}) {
    EXPECT_THAT(up.output(), HasSubstr(saved));
  }
}

TEST_F(Up, KillsWorkersOnTheSecondCtrlC) {
  worker("trap '' TERM; echo here; " + std::string(kIdle));  // ignores SIGTERM
  RunningProgram up = start();
  up.wait_for_output("worker-0 | here");
  up.wait_for_output("worker-1 | here");
  up.send(SIGINT);
  up.wait_for_output("a second signal kills them");
  std::this_thread::sleep_for(kSameRequest);
  up.send(SIGINT);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(up.wait(), code(ExitCode::kInterrupted));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(25))
      << "the grace period is 30 s";
}

TEST_F(Up, KillsAWorkerAfterItsGracePeriod) {
  manifest("", "    terminationGracePeriodSeconds: 1");
  worker("trap '' TERM; echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.wait_for_output("worker-0 | here");
  up.wait_for_output("worker-1 | here");
  up.send(SIGTERM);
  EXPECT_EQ(up.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, LeavesNoWorkerRunningWhenItIsKilled) {
  worker("echo $$ > $T/pid-$I; echo here; " + std::string(kIdle));
  RunningProgram up = start();
  up.wait_for_output("worker-0 | here");
  up.wait_for_output("worker-1 | here");
  const ProcessExitWatch first(pid_of(0));
  const ProcessExitWatch second(pid_of(1));
  up.send(SIGKILL);
  EXPECT_EQ(up.wait(), 128 + SIGKILL);
  EXPECT_TRUE(first.wait_for_exit());
  EXPECT_TRUE(second.wait_for_exit());
}

TEST_F(Up, ResumesAfterItWasKilled) {
  worker("if [ -e $T/second ]; then exit 0; fi; echo here; " + std::string(kIdle));
  std::string uid;
  {
    RunningProgram up = start();
    up.wait_for_output("worker-0 | here");
    up.wait_for_output("worker-1 | here");
    uid = job()["metadata"]["uid"];
    up.send(SIGKILL);
    up.wait();
  }
  write("second", "");
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_THAT(up.output(),
              HasSubstr("job       job: mrpc, 2 workers, resumed (.tilewright/job)\n"));
  EXPECT_EQ(job()["metadata"]["uid"], uid);
}

TEST_F(Up, KillsTheChildrenOfAnExitedWorker) {
  worker(
      "if [ $I = 0 ]; then tail -f /dev/null & echo $! > $T/pid-0; echo > $T/started; "
      "read x < $T/go; fi");
  for (const char* pipe : {"started", "go"}) {
    ASSERT_EQ(mkfifo((folder() / pipe).c_str(), 0600), 0);
  }
  RunningProgram up = start();
  std::ifstream(folder() / "started").get();  // opens when the worker opens it
  const ProcessExitWatch child(pid_of(0));
  write("go", "\n");
  EXPECT_EQ(up.wait(), code(ExitCode::kOk)) << up.output();
  EXPECT_TRUE(child.wait_for_exit());
}

TEST_F(Up, WaitsWhileSuspendedAndResumesOnRequest) {
  manifest("  runPolicy: {suspend: true}");
  worker("echo ran");
  RunningProgram up = start();
  up.wait_for_output("kill -USR1");
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
  EXPECT_THAT(up.output(),
              HasSubstr("the job was active for longer than its activeDeadlineSeconds of 1"));
}

TEST_F(Up, StopsAllWorkersForAnyCleanPodPolicy) {
  manifest("  runPolicy: {cleanPodPolicy: None}", "    restartPolicy: Never");
  worker("if [ $I = 1 ]; then exit 1; fi; " + std::string(kIdle));
  RunningProgram up = start();
  EXPECT_EQ(up.wait(), code(ExitCode::kJobFailed)) << up.output();
}

TEST_F(Up, GivesEachRunAGeneratedName) {
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

TEST_F(Up, RerunsAFinishedJobOnlyWithReplace) {
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

TEST_F(Up, OverwritesTheOutputOfTheJobThatItReplaces) {
  worker(
      "[ $I = 0 ] || exit 0; echo \"args $*\"; mkdir -p $T/results/job; "
      "echo \"{\\\"job_uid\\\": \\\"$TILEWRIGHT_JOB_UID\\\"}\" > "
      "$T/results/job/.tilewright-job.json");
  RunningProgram first = start();
  EXPECT_EQ(first.wait(), code(ExitCode::kOk)) << first.output();
  EXPECT_THAT(first.output(), Not(HasSubstr("--overwrite_output_dir")));
  RunningProgram second = start({"--replace"});
  EXPECT_EQ(second.wait(), code(ExitCode::kOk)) << second.output();
  EXPECT_THAT(second.output(), HasSubstr(" --overwrite_output_dir=true"));
}

TEST_F(Up, RefusesTheOutputOfAnotherJobBeforeItStartsWorkers) {
  worker("echo started");
  fs::create_directories(folder() / "results/job");
  write("results/job/.tilewright-job.json", "{\"job_uid\": \"another\"}");
  for (const bool replace : {false, true}) {
    RunningProgram up = replace ? start({"--replace"}) : start();
    EXPECT_EQ(up.wait(), code(ExitCode::kOutput));
    EXPECT_EQ(up.output(), "job.yaml:10: spec.trainer.output: output:$(TILEWRIGHT_JOB_NAME): " +
                               (folder() / "results/job").string() +
                               " contains the results of another job; use another directory, or "
                               "set spec.trainer.overwrite_output_dir: true\n");
    EXPECT_FALSE(fs::exists(folder() / ".tilewright/job/job.json")) << "nothing to resume";
  }
}

TEST_F(Up, RejectsASecondUpOfTheSameJob) {
  worker("echo here; " + std::string(kIdle));
  RunningProgram first = start();
  first.wait_for_output("worker-0 | here");
  RunningProgram second = start();
  EXPECT_EQ(second.wait(), code(ExitCode::kUsage));
  EXPECT_THAT(second.output(), HasSubstr("another `tilewright up` runs job job"));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), code(ExitCode::kTerminated));
}

TEST_F(Up, DeletesNothingOutsideOfItsStateDirectory) {
  worker("exit 0");
  fs::create_directories(folder() / "project/logs");
  write("project/job.json", "{}");
  RunningProgram outside = start({"--name", "../project", "--replace"});
  EXPECT_EQ(outside.wait(), code(ExitCode::kUsage)) << outside.output();
  EXPECT_THAT(outside.output(),
              HasSubstr("--name: found ../project, expected lower-case letters, digits and '-'"));
  RunningProgram beside = start({"--state_dir", ".", "--name", "project", "--replace"});
  EXPECT_EQ(beside.wait(), code(ExitCode::kUsage)) << beside.output();
  EXPECT_THAT(beside.output(), HasSubstr("project: found files but no tilewright-up.lock"));
  EXPECT_EQ(testing::read_text(folder() / "project/job.json"), "{}");
  EXPECT_TRUE(fs::is_directory(folder() / "project/logs"));
}

TEST_F(Up, RejectsAnInvalidJobAndCreatesNoState) {
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
  expect_refused(ExitCode::kModel, "spec.trainer.model: models:tiny: ");
  fs::rename(folder() / "elsewhere", folder() / "models");
  fs::remove_all(folder() / "data/pairs");
  expect_refused(ExitCode::kData, "spec.trainer.data: data:pairs: ");
  fs::create_directories(folder() / "data/pairs");
  write("results", "a file in place of the directory");
  expect_refused(ExitCode::kOutput, "the volume output: ");
  fs::remove(folder() / "results");
  fs::remove(folder() / "worker.sh");
  expect_refused(ExitCode::kUsage, "--worker_binary: ./worker.sh is not an executable file");
  fs::remove(folder() / "job.yaml");
  expect_refused(ExitCode::kManifest, "job.yaml");
}

}  // namespace
}  // namespace tilewright
