// Trainings that MPI launchers start, on hosts that are network namespaces with an sshd each: Open
// MPI's mpirun and Hydra's mpiexec, over both exchanges, give the weights of one process; a killed
// rank ends the run; the guides' mpirun lines run word for word but for the program's name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"
#include "tests/integration/training_fixture.h"
#include "tests/support/network_hosts.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

const fs::path kOpenMpi = "/usr/bin/mpirun.openmpi";
const fs::path kHydra = "/usr/bin/mpiexec.hydra";
constexpr const char* kKillWorker1 = "TILEWRIGHT_FAULT=step.begin@3,worker=1";

// Why the tests cannot run here; empty: they can.
std::string missing() {
  for (const fs::path& launcher : {kOpenMpi, kHydra}) {
    if (!fs::exists(launcher)) return launcher.string() + " is missing: .ci/packages.txt lists it";
  }
  return testing::NetworkHosts::missing();
}

// The processes whose command line contains `text`.
std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    if (words.find(text) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::set<std::string> variables_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid));
  std::set<std::string> variables;
  for (std::string one; std::getline(file, one, '\0');) variables.insert(one);
  return variables;
}

void expect_no_process_left(const std::string& text) {
  for (const pid_t pid : processes_with(text)) {
    try {
      EXPECT_TRUE(testing::ProcessExitWatch(pid).wait_for_exit()) << pid;
    } catch (const std::runtime_error&) {  // it has ended
    }
  }
  EXPECT_TRUE(processes_with(text).empty());
}

class MpiTraining : public testing::Training {
 protected:
  void SetUp() override {
    if (const std::string why = missing(); !why.empty()) {
      if (testing::prerequisites_required()) FAIL() << why;
      GTEST_SKIP() << why;
    }
    Training::SetUp();
    hosts_.emplace(2);
  }

  // Six steps of 16 examples with dropout.
  Words flags_of(const std::string& output) const {
    Words words = flags(output);
    for (const char* flag :
         {"--per_device_train_batch_size=8", "--max_steps=6", "--max_workers=4", "--threads=1"}) {
      words.emplace_back(flag);
    }
    return words;
  }
  std::string reference() {
    EXPECT_EQ(run(flags_of("reference")), 0) << output_;
    return digest();
  }

  // `launcher` and its options on node1, then the trainer, or the agent that starts it.
  std::unique_ptr<testing::RunningProgram> start(const fs::path& launcher, const Words& options,
                                                 const std::string& output,
                                                 const Words& further = {},
                                                 const Words& agent = {}) const {
    Words words = {"/usr/bin/env", "PATH=" + hosts_->programs().string() + ":/usr/bin:/bin",
                   "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", launcher};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(testing::program("tilewright-worker"));
    words.insert(words.end(), agent.begin(), agent.end());
    for (const std::string& word : flags_of(output)) words.push_back(word);
    words.insert(words.end(), further.begin(), further.end());
    words = hosts_->command(0, words);
    return std::make_unique<testing::RunningProgram>(
        words.front(), Words(words.begin() + 1, words.end()), folder());
  }
  int launch(const fs::path& launcher, const Words& options, const std::string& output,
             const Words& further = {}, const Words& agent = {}) {
    const auto running = start(launcher, options, output, further, agent);
    const int code = running->wait();
    output_ = running->output();
    return code;
  }
  std::string hash_of(const fs::path& launcher, const Words& options, const std::string& output,
                      const Words& further = {}) {
    EXPECT_EQ(launch(launcher, options, output, further), 0) << output_;
    expect_no_process_left((folder() / output).string());
    return digest();
  }
  // The trainers, without the launcher's processes.
  std::vector<pid_t> workers_of(const std::string& output) const {
    std::vector<pid_t> found = processes_with((folder() / output).string());
    std::erase_if(found, [](pid_t pid) {
      std::error_code gone;
      return fs::read_symlink(fmt::format("/proc/{}/exe", pid), gone).filename() !=
             "tilewright-worker";
    });
    return found;
  }
  std::string hostfile() const { return hosts_->hostfile_path(); }

  std::optional<testing::NetworkHosts> hosts_;
};

TEST_F(MpiTraining, OpenMpiGivesTheHashOfOneProcess) {
  const std::string expected = reference();
  const Words hosts = {"--hostfile", hostfile()};
  EXPECT_EQ(hash_of(kOpenMpi, {"--hostfile", hostfile(), "-np", "1"}, "one"), expected);
  for (const std::string backend : {"ccl", "mpi"}) {
    for (const std::string processes : {"1", "2"}) {
      const Words options = {"--hostfile", hostfile(),
                             "--map-by",   "ppr:" + processes + ":node",
                             "-x",         "OMP_NUM_THREADS=1"};
      EXPECT_EQ(hash_of(kOpenMpi, options, backend + processes, {"--ddp_backend=" + backend}),
                expected);
      EXPECT_THAT(output_, HasSubstr("Open MPI: " + std::to_string(2 * std::stoi(processes)) +
                                     " processes"));
      const bool over_mpi = backend == "mpi";
      EXPECT_EQ(output_.find("exchanged through Open MPI") != std::string::npos, over_mpi)
          << output_;
    }
  }
}

TEST_F(MpiTraining, HydraGivesTheHashOfOneProcess) {
  const std::string expected = reference();
  EXPECT_EQ(hash_of(kHydra, {"-f", hostfile(), "-n", "1"}, "one"), expected);
  EXPECT_EQ(
      hash_of(kHydra, {"-f", hostfile(), "-n", "2", "-ppn", "1", "-genv", "OMP_NUM_THREADS", "1"},
              "two", {"--ddp_backend", "ccl"}),
      expected);
  EXPECT_THAT(output_, HasSubstr("Hydra: 2 processes; rank 0 serves the rendezvous at 10.77.0.1:"));
  EXPECT_EQ(
      hash_of(kHydra, {"-f", hostfile(), "-np", "4", "-ppn", "2", "-genv", "OMP_NUM_THREADS=1"},
              "four", {"--xpu_backend", "ccl"}),
      expected);
}

TEST_F(MpiTraining, EndsWhenARankIsKilledUnderOpenMpi) {
  for (const std::string backend : {"ccl", "mpi"}) {
    const int code = launch(kOpenMpi,
                            {"--hostfile", hostfile(), "--map-by", "ppr:2:node", "-x",
                             "TILEWRIGHT_FAULT=step.begin@3,worker=2"},
                            backend, {"--ddp_backend=" + backend});
    EXPECT_NE(code, 0) << output_;
    EXPECT_THAT(output_, Not(HasSubstr("output: SHA-256")));
    expect_no_process_left((folder() / backend).string());
  }
}

// Hydra itself leaves the other ranks alone when one fails.
TEST_F(MpiTraining, EndsWhenARankIsKilledUnderHydra) {
  for (const std::string worker : {"0", "3"}) {
    const int code = launch(kHydra,
                            {"-f", hostfile(), "-n", "4", "-ppn", "2", "-genv",
                             "TILEWRIGHT_FAULT=step.begin@3,worker=" + worker},
                            "killed" + worker);
    EXPECT_NE(code, 0) << output_;
    EXPECT_THAT(output_, Not(HasSubstr("output: SHA-256")));
    expect_no_process_left((folder() / ("killed" + worker)).string());
  }
}

// mpirun starts an agent on each host, and the agents restart what dies.
TEST_F(MpiTraining, GoesOnWhenAnAgentStartedTheRankThatIsKilled) {
  const std::string expected = reference();
  std::ofstream(folder() / "key") << "0123456789abcdef0123456789abcdef";
  const std::vector<std::pair<fs::path, Words>> launchers = {
      {kOpenMpi, {"--hostfile", hostfile(), "--map-by", "ppr:1:node", "-x", kKillWorker1}},
      {kHydra, {"-f", hostfile(), "-n", "2", "-ppn", "1", "-genv", kKillWorker1}}};
  for (const auto& [launcher, options] : launchers) {
    const std::string output = "agents-of-" + launcher.filename().string();
    const Words agent = {"agent",
                         "--nnodes=2",
                         "--nproc-per-node=2",
                         "--rdzv-backend=c10d",
                         "--rdzv-endpoint=node1",
                         "--rdzv_key_file=" + (folder() / "key").string(),
                         "--"};
    ASSERT_EQ(launch(launcher, options, output, {}, agent), 0) << output_;
    EXPECT_THAT(output_, HasSubstr("restart 1 of 3"));
    EXPECT_EQ(digest(), expected);
    expect_no_process_left((folder() / output).string());
  }
}

TEST_F(MpiTraining, EndsWithOneSentenceWhenARankCannotStart) {
  const fs::path file = folder() / "file";
  std::ofstream(file) << "no directory";
  const int code = launch(kHydra, {"-f", hostfile(), "-n", "2", "-ppn", "1"}, "file");
  EXPECT_NE(code, 0);
  EXPECT_THAT(output_, HasSubstr(file.string()));
  expect_no_process_left(file.string());
}

TEST_F(MpiTraining, RefusesOpenMpisExchangeUnderHydra) {
  EXPECT_NE(
      launch(kHydra, {"-f", hostfile(), "-n", "2", "-ppn", "1"}, "out", {"--ddp_backend=mpi"}), 0);
  EXPECT_THAT(output_, HasSubstr("--ddp_backend=mpi: found processes that Hydra started, expected "
                                 "Open MPI's mpirun"));
}

TEST_F(MpiTraining, ResumesFromTheCheckpointOfARunThatWasKilled) {
  const std::string expected = reference();
  const Words options = {"-f", hostfile(), "-n", "2", "-ppn", "1"};
  Words killed = options;
  killed.insert(killed.end(), {"-genv", "TILEWRIGHT_FAULT=checkpoint.done,worker=0"});
  EXPECT_NE(launch(kHydra, killed, "resumed"), 0);
  EXPECT_EQ(hash_of(kHydra, options, "resumed"), expected);
  EXPECT_THAT(output_, HasSubstr("resuming from"));
}

// Holds the ranks before the fourth step. Then rank 0 writes its checkpoint for longer than the
// other ranks need to end. If they asked the launcher to end the run, it would kill rank 0.
std::string slow_stop(const testing::HeldPoint& held) {
  return held.fault("step.begin@3") + ";checkpoint.before_rename,worker=0,delay=3000";
}
const Words kEachStep = {"--logging_steps=1", "--save_steps=100"};

TEST_F(MpiTraining, WritesTheCheckpointOfAStopBeforeTheLauncherEndsTheRun) {
  const std::string expected = reference();
  for (const fs::path& launcher : {kOpenMpi, kHydra}) {
    const std::string output = "stopped-under-" + launcher.filename().string();
    testing::HeldPoint held(folder() / (output + ".held"));
    Words options = {"--hostfile", hostfile(), "--map-by", "ppr:1:node"};
    Words variable = {"-x", fmt::format("TILEWRIGHT_FAULT={}", slow_stop(held))};
    if (launcher == kHydra) {
      options = {"-f", hostfile(), "-n", "2", "-ppn", "1"};
      variable = {"-genv", "TILEWRIGHT_FAULT", slow_stop(held)};
    }
    Words stopped = options;
    stopped.insert(stopped.end(), variable.begin(), variable.end());
    const auto running = start(launcher, stopped, output, kEachStep);
    ASSERT_TRUE(running->wait_for_output("step 2/6"));
    const std::vector<pid_t> workers = workers_of(output);
    ASSERT_EQ(workers.size(), 2U);
    for (const pid_t pid : workers) kill(pid, SIGTERM);
    held.release();
    EXPECT_NE(running->wait(), 0);
    EXPECT_THAT(running->output(), HasSubstr("stopped by a signal"));
    expect_no_process_left((folder() / output).string());
    EXPECT_EQ(hash_of(launcher, options, output, kEachStep), expected) << running->output();
    EXPECT_THAT(output_, HasSubstr("resuming from")) << running->output();
  }
}

// A killed rank makes the launcher kill the others at once; of one that hangs only they know.
TEST_F(MpiTraining, WritesTheCheckpointOfRank0WhenAnotherRankHangs) {
  const std::string expected = reference();
  const Words options = {"-f", hostfile(), "-n", "3"};
  testing::HeldPoint held(folder() / "held");
  Words frozen = options;
  frozen.insert(frozen.end(), {"-genv", "TILEWRIGHT_FAULT", slow_stop(held)});
  const auto running = start(kHydra, frozen, "frozen", kEachStep);
  ASSERT_TRUE(running->wait_for_output("step 2/6"));
  const std::vector<pid_t> workers = workers_of("frozen");
  ASSERT_EQ(workers.size(), 3U);
  for (const pid_t pid : workers) {
    if (variables_of(pid).contains("PMI_RANK=1")) kill(pid, SIGSTOP);
  }
  held.release();
  EXPECT_NE(running->wait(), 0);
  expect_no_process_left((folder() / "frozen").string());
  EXPECT_EQ(hash_of(kHydra, options, "frozen", kEachStep), expected) << running->output();
  EXPECT_THAT(output_, HasSubstr("resuming from")) << running->output();
}

// The lines of the guides, with the words "python3 run_qa.py" replaced.
class MpiGuideCommand : public testing::HubTraining {
 protected:
  void SetUp() override {
    if (const std::string why = missing(); !why.empty()) {
      if (testing::prerequisites_required()) FAIL() << why;
      GTEST_SKIP() << why;
    }
    hub_->add_alias(testing::HubServer::Type::kModel, "google-bert/bert-large-uncased",
                    "google-bert/bert-base-uncased");
  }

  // Runs the shell text on the first of `count` hosts, whose home directory has the guide's
  // hostfiles, with Hydra as mpirun. "/tmp/" becomes the temporary directory. The file "hostfile"
  // begins with this host, and only the configuration of ssh knows its other names.
  int run_on_hosts(int count, std::string text) {
    const testing::NetworkHosts hosts(count);
    fs::copy_file(hosts.hostfile_path(), path("hosts"), fs::copy_options::overwrite_existing);
    std::ofstream hostfile(path("hostfile"));
    hostfile << (localhost_first_ ? "localhost" : hosts.name(0)) << "\n";
    for (int host = 1; host < count; ++host) hostfile << hosts.alias(host) << "\n";
    hostfile.close();
    // Not a link: Hydra looks for its proxy beside itself.
    std::ofstream(hosts.programs() / "mpirun") << "#!/bin/sh\nexec " << kHydra << " \"$@\"\n";
    fs::permissions(hosts.programs() / "mpirun", fs::perms::owner_all);
    fs::create_symlink(testing::program("tilewright-worker"),
                       hosts.programs() / "tilewright-worker");
    const std::string here = " " + folder().string() + "/";  // may begin with /tmp/ itself
    for (std::size_t at = 0; (at = text.find(" /tmp/", at)) != std::string::npos;
         at += here.size()) {
      text.replace(at, 6, here);
    }
    std::ofstream(path("line.sh")) << text << "\n";
    const Words words = hosts.command(0, {"/usr/bin/env", "HOME=" + folder().string(),
                                          "PATH=" + hosts.programs().string() + ":/usr/bin:/bin",
                                          "HF_HUB_OFFLINE=1", "/bin/bash", path("line.sh")});
    testing::RunningProgram running(words.front(), {words.begin() + 1, words.end()}, folder());
    const int code = running.wait();
    output_ = running.output();
    expect_no_process_left("--output_dir" + std::string(1, '\0') + folder().string());
    return code;
  }

  // The line gives the hash of one process with the same global batch, which fills the cache too:
  // the namespaces do not reach the hub.
  void expect_hash_of_one_process(int count, int processes, const std::string& prefix,
                                  const std::string& launch, const std::string& flags,
                                  const std::string& end = "") {
    ASSERT_EQ(run(flags + " --nominal_workers " + std::to_string(processes)), 0) << output_;
    const std::string expected = digest();
    for (const char* output : {"mrpc", "debug_squad"}) fs::remove_all(path(output));
    ASSERT_EQ(run_on_hosts(count, prefix + launch + " tilewright-worker train " + flags + end), 0)
        << output_;
    EXPECT_EQ(digest(), expected);
    EXPECT_THAT(output_, HasSubstr("Hydra: " + std::to_string(processes) + " processes"));
  }

  bool localhost_first_ = false;
};

TEST_F(MpiGuideCommand, TrainsDistilBertOnSquadWithEightProcessesOnFourHosts) {
  expect_hash_of_one_process(
      4, 8,
      "export MASTER_ADDR=10.77.0.1 NUM_PROCESSES=8 NUM_PROCESSES_PER_NODE=2 CCL_WORKER_COUNT=2 "
      "CCL_WORKER_AFFINITY=auto KMP_HW_SUBSET=1T\n",
      "mpirun -f ~/hosts -n $NUM_PROCESSES -ppn $NUM_PROCESSES_PER_NODE -genv OMP_NUM_THREADS=24 "
      "-genv LD_PRELOAD=\"/usr/lib/x86_64-linux-gnu/libtcmalloc.so\"",
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--per_device_train_batch_size 32 --num_train_epochs 1 --output_dir /tmp/debug_squad/ "
      "--overwrite_output_dir --no_cuda --xpu_backend ccl --bf16");
}

TEST_F(MpiGuideCommand, TrainsDistilBertOnMrpcWithPinning) {
  expect_hash_of_one_process(
      2, 2, "export CCL_WORKER_AFFINITY=\"0,1,2,3,32,33,34,35\"\n",
      "mpirun -f hostfile -np 2 -ppn 1 -genv I_MPI_PIN_DOMAIN=[0xfffffff0] -genv "
      "OMP_NUM_THREADS=28",
      "--model_name_or_path distilbert-base-uncased --task_name mrpc --do_train --do_eval "
      "--max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 "
      "--num_train_epochs 3 --output_dir /tmp/mrpc/ --overwrite_output_dir True --xpu_backend ccl "
      "--no_cuda True");
}

constexpr const char* kBertLarge =
    "--model_name_or_path google-bert/bert-large-uncased --dataset_name squad --do_train --do_eval "
    "--per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 --max_seq_length "
    "384 --doc_stride 128 --output_dir /tmp/debug_squad/ --no_cuda --ddp_backend ccl --use_ipex";

TEST_F(MpiGuideCommand, TrainsBertLargeWithTwoProcessesOnOneHost) {
  expect_hash_of_one_process(1, 2, "", "mpirun -n 2 -genv OMP_NUM_THREADS=23", kBertLarge);
}

// Some guides print a backslash after the last word.
TEST_F(MpiGuideCommand, TrainsBertLargeWithFourProcessesOnTwoHosts) {
  expect_hash_of_one_process(2, 4, "", "mpirun -f hostfile -n 4 -ppn 2 -genv OMP_NUM_THREADS=23",
                             kBertLarge, " \\");
}

// Without the interface the proxies of MPICH's Hydra connect back to "localhost".
TEST_F(MpiGuideCommand, TakesLocalhostInTheHostfileWithAnInterface) {
  localhost_first_ = true;
  expect_hash_of_one_process(
      2, 4, "", "mpirun -iface eth0 -f hostfile -n 4 -ppn 2 -genv OMP_NUM_THREADS=23", kBertLarge);
}

}  // namespace
}  // namespace tilewright
