// Agents on two hosts, which are network namespaces with an sshd each: started over ssh from a
// hostfile, or on each host as torchrun's c10d.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "common/base/exit_codes.h"
#include "common/base/version.h"
#include "tests/integration/tarball.h"
#include "tests/integration/training_fixture.h"
#include "tests/support/network_hosts.h"
#include "tests/support/run_command.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::NetworkHosts;
using ::testing::Not;
using testing::RunningProgram;
using testing::ScopedVariable;

constexpr const char* kHostsPath = "hosts";

class AgentHosts : public testing::Training {
 protected:
  void SetUp() override {
    Training::SetUp();
    const std::string missing = NetworkHosts::missing();
    if (!missing.empty()) {
      if (testing::prerequisites_required()) FAIL() << missing;
      GTEST_SKIP() << missing;
    }
    hosts_ = std::make_unique<NetworkHosts>(2);
    path_ = std::make_unique<ScopedVariable>(
        "PATH", hosts_->programs().string() + ":/usr/sbin:/usr/bin:/sbin:/bin");
  }
  void TearDown() override {
    for (int host = 0; hosts_ != nullptr && host < hosts_->count(); ++host) kill_processes(host);
  }

  // Ends every process of a host, its sshd included.
  void kill_processes(int host) const {
    std::istringstream pids(
        testing::run_script(fmt::format("ip netns pids {}", network(host))).output);
    for (pid_t pid = 0; pids >> pid;) kill(pid, SIGKILL);
  }
  // As if the machine had lost its power: its packets end.
  void unplug(int host) const {
    ASSERT_EQ(
        testing::run_script(fmt::format("ip -n {} link set eth0 down", network(host))).exit_code,
        0);
  }
  static std::string network(int host) { return fmt::format("tilewright-{}-{}", getpid(), host); }

  std::string hostfile(const std::string& text) const {
    std::ofstream(folder() / kHostsPath) << text;
    return "--hostfile=" + (folder() / kHostsPath).string();
  }
  // As the copies on hosts that share no file system.
  std::string key_file() const {
    std::ofstream(folder() / "key") << "0123456789abcdef0123456789abcdef";
    return "--rdzv_key_file=" + (folder() / "key").string();
  }
  std::unique_ptr<RunningProgram> start(int host, std::vector<std::string> words) const {
    words.insert(words.begin(), {worker_, "agent"});
    words = hosts_->command(host, words);
    return std::make_unique<RunningProgram>(
        words.front(), std::vector<std::string>(words.begin() + 1, words.end()), folder());
  }
  int run_agent(const std::vector<std::string>& words) {
    const auto program = start(0, words);
    const int code = program->wait();
    output_ = program->output();
    return code;
  }
  std::vector<std::string> training(std::vector<std::string> agent, const std::string& output,
                                    const std::vector<std::string>& further = {}) const {
    agent.emplace_back("--");
    for (const std::string& flag : flags(output)) agent.push_back(flag);
    agent.insert(agent.end(), further.begin(), further.end());
    agent.emplace_back("--threads=1");
    return agent;
  }

  std::string worker_ = testing::program("tilewright-worker");
  std::unique_ptr<NetworkHosts> hosts_;
  std::unique_ptr<ScopedVariable> path_;
};

// Command lines of all processes that hold `text`.
std::string command_lines_with(const std::string& text) {
  std::string found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(file)), {});
    std::replace(line.begin(), line.end(), '\0', ' ');
    if (line.find(text) != std::string::npos) found += line + "\n";
  }
  return found;
}

TEST_F(AgentHosts, TrainOverSshWithTheHashOfOneProcess) {
  const std::string reference = train_in_one_process("one", 1);
  testing::HeldPoint held(folder() / "held");
  const testing::ScopedFault fault(held.fault("step.begin@0"));
  const auto program =
      start(0, training({hostfile("# both forms\nnode2 slots=1\nlocalhost:1  # first\n"),
                         "--rdzv_conf=join_timeout=77", "--shutdown_timeout=99"},
                        "two"));
  ASSERT_TRUE(program->wait_for_output("membership epoch 1: rank 0 of 2"));
  // The secret is on no command line: ssh's, the shell's, the agents'.
  const std::string lines = command_lines_with("--rdzv-key-file=-");
  EXPECT_THAT(lines, HasSubstr("BatchMode=yes"));
  EXPECT_FALSE(std::regex_search(lines, std::regex("[0-9a-f]{64}"))) << lines;
  // The agents have the times that the flags give.
  EXPECT_THAT(lines, AllOf(HasSubstr("join_timeout=77"), HasSubstr("--shutdown-timeout=99")));
  held.release();
  EXPECT_EQ(program->wait(), 0) << program->output();
  output_ = program->output();
  EXPECT_THAT(output_, HasSubstr("[localhost] [worker 0.0] "));
  EXPECT_EQ(digest(), reference);
}

// The hosts share the file system. The other agent is started by the path of the start program, not
// by that of the loader, which is what /proc/self/exe names.
TEST_F(AgentHosts, TrainOverSshFromTheTarball) {
  if (const std::string missing = testing::missing_for_tarball(); !missing.empty()) {
    if (testing::prerequisites_required()) FAIL() << missing;
    GTEST_SKIP() << missing;
  }
  const std::string reference = train_in_one_process("one", 1);
  worker_ = testing::unpack_tarball(folder() / "tarball") / "tilewright-worker";
  testing::HeldPoint held(folder() / "held");
  const testing::ScopedFault fault(held.fault("step.begin@0"));
  const auto program = start(0, training({hostfile("node1\nnode2\n")}, "two"));
  ASSERT_TRUE(program->wait_for_output("membership epoch 1: rank 0 of 2"));
  EXPECT_THAT(command_lines_with("--rdzv-key-file=-"), HasSubstr(worker_));
  held.release();
  EXPECT_EQ(program->wait(), 0) << program->output();
  output_ = program->output();
  EXPECT_EQ(digest(), reference);
}

// The second host has a name that only the configuration of ssh knows.
TEST_F(AgentHosts, TrainWithSlotsPortsAnInterfaceAndTls) {
  const std::string reference = train_in_one_process("one", 1, {"--max_workers=4"});
  EXPECT_EQ(run_agent(training({hostfile("node1 slots=2\n" + hosts_->alias(1) + " slots=2\n"),
                                "--interface=eth0", "--port-range", "21000-21099",
                                "--rdzv_conf=tls=true", "--log-dir=logs", "--tee=3"},
                               "four", {"--max_workers=4"})),
            0)
      << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_THAT(output_, HasSubstr("[node1] [worker 0.0] "));
  EXPECT_THAT(output_, HasSubstr("[" + hosts_->alias(1) + "] "));
  EXPECT_THAT(output_, HasSubstr("membership epoch 1: rank 0 of 4"));
  int logs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder() / "logs"))
    logs += entry.path().filename() == "stderr.log" ? 1 : 0;
  EXPECT_EQ(logs, 4);
}

TEST_F(AgentHosts, TrainWithTwoProcessesPerHostAndBf16Gradients) {
  const std::vector<std::string> further = {"--max_workers=4", "--ddp_comm_hook=bf16"};
  const std::string reference = train_in_one_process("one", 1, further);
  EXPECT_EQ(run_agent(training({hostfile("node1 slots=2\nnode2 slots=2\n")}, "four", further)), 0)
      << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_THAT(output_, HasSubstr("gradients are summed on each host first: 2 hosts with 2 "
                                 "processes each"));
}

// The process dies on the second host, of a variable that is set on the first one.
TEST_F(AgentHosts, HaveTheVariablesOfTheHostThatStartsThem) {
  const std::string reference = train_in_one_process("one", 1);
  const testing::ScopedFault fault("step.begin@5,worker=1");
  EXPECT_EQ(run_agent(training({hostfile("node1\nnode2\n")}, "two")), 0) << output_;
  EXPECT_TRUE(std::regex_search(output_, std::regex(R"(\[node2\] .*restart 1 of 3)"))) << output_;
  EXPECT_EQ(digest(), reference);
}

TEST_F(AgentHosts, SaysOneSentenceForEachHostThatCannotBeReached) {
  EXPECT_EQ(run_agent(training({hostfile("localhost\nnode9\n10.77.0.99\nnode2\n")}, "out")),
            static_cast<int>(ExitCode::kPeerLost))
      << output_;
  EXPECT_THAT(output_, AllOf(HasSubstr("host node9 cannot be reached: ssh: "),
                             HasSubstr("host 10.77.0.99 cannot be reached: ssh: connect to host "
                                       "10.77.0.99 port 22: No route to host"),
                             Not(HasSubstr("host node2 cannot"))));
}

TEST_F(AgentHosts, EndsAllWhenAHostIsKilled) {
  const auto program =
      start(0, training({hostfile("node1\nnode2\n")}, "out", {"--max_steps=4000"}));
  ASSERT_TRUE(program->wait_for_output("membership epoch 1: rank 0 of 2"));
  kill_processes(1);
  EXPECT_EQ(program->wait(), static_cast<int>(ExitCode::kPeerLost)) << program->output();
  EXPECT_THAT(program->output(), HasSubstr("host node2 was lost"));
}

// The coordinator misses the heartbeats of the host; the other one continues from memory.
TEST_F(AgentHosts, AnElasticTrainingGoesOnWithoutAHostThatLostItsPower) {
  const std::vector<std::string> steps = {"--per_device_train_batch_size=16", "--max_steps=24",
                                          "--logging_steps=1"};
  const std::string reference = train_in_one_process("one", 1, steps);
  testing::HeldPoint held(folder() / "held");
  const testing::ScopedFault fault(held.fault("step.begin@8"));
  // Without last_call_timeout the first host trains alone if the second one is 3 s later.
  const auto program = start(
      0, training({hostfile("node1\nnode2\n"), "--nnodes=1:2", "--rdzv_conf=last_call_timeout=60"},
                  "two", steps));
  ASSERT_TRUE(program->wait_for_output("step 6/24"));
  unplug(1);
  held.release();
  EXPECT_EQ(program->wait(), 0) << program->output();
  output_ = program->output();
  EXPECT_THAT(output_, HasSubstr("host node2 was lost"));
  EXPECT_THAT(output_,
              AllOf(HasSubstr("recovered: worker 1 lost"), Not(HasSubstr("resuming from"))));
  EXPECT_EQ(digest(), reference);
}

TEST_F(AgentHosts, CheckPrintsALineForEachHost) {
  EXPECT_EQ(run_agent({"--check", hostfile("localhost\nnode2\n"), "--port-range=21000-21009"}), 0)
      << output_;
  const std::string line = fmt::format("reachable, tilewright-worker {} (", kVersion);
  EXPECT_THAT(output_, AllOf(HasSubstr("localhost: " + line), HasSubstr("node2: " + line),
                             HasSubstr(" CPUs, "), HasSubstr("port 21000 free\n")));
  EXPECT_EQ(std::count(output_.begin(), output_.end(), '\n'), 2) << output_;
  EXPECT_EQ(run_agent({"--check", hostfile("localhost\nnode9\n")}),
            static_cast<int>(ExitCode::kUnsupported));
  EXPECT_THAT(output_, AllOf(HasSubstr("localhost: reachable, "),
                             HasSubstr("node9: cannot be reached: ssh: ")));
}

// The same command line on both hosts, without a node rank, as torchrun's users write it.
TEST_F(AgentHosts, C10dServesOnTheHostThatTheEndpointNames) {
  const std::string reference = train_in_one_process("one", 1);
  const std::vector<std::string> words = training(
      {"--nnodes=2", "--nproc-per-node", "1", "--rdzv-backend=c10d", "--rdzv-endpoint=node1",
       "--rdzv-id=run-7", "--rdzv-conf=join_timeout=120", key_file()},
      "two");
  const auto second = start(1, words);
  ASSERT_TRUE(second->wait_for_output("waiting for the rendezvous at node1:29400"));
  const auto first = start(0, words);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  EXPECT_THAT(first->output(), HasSubstr("[worker 0.0] "));
  output_ = first->output();
  EXPECT_EQ(digest(), reference);
}

// As a StatefulSet, whose pods may start before their DNS records are there.
TEST_F(AgentHosts, C10dServesAlsoIfTheNameOfTheEndpointAppearsLater) {
  const std::vector<std::string> words =
      training({"--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=late",
                "--rdzv-id=run-7", "--rdzv-conf=join_timeout=120", key_file()},
               "two");
  const auto first = start(0, words), second = start(1, words);
  ASSERT_TRUE(first->wait_for_output("waiting until the name of the rendezvous resolves"));
  ASSERT_TRUE(second->wait_for_output("waiting until the name of the rendezvous resolves"));
  hosts_->add_name("late", 0);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  EXPECT_THAT(first->output(), HasSubstr("[worker 0.0] "));
}

// As users start a script again. All launches have the same job UID, also without --rdzv-id.
TEST_F(AgentHosts, StartAnewWithOverwriteOutputDir) {
  const std::string reference = train_in_one_process("one", 1, {"--learning_rate=2e-3"});
  const std::vector<std::vector<std::string>> names = {{}, {"--rdzv-id=run-7"}};
  for (const std::vector<std::string>& name : names) {
    const std::string output = name.empty() ? "unnamed" : "named";
    const auto launch = [&](const std::vector<std::string>& further) {
      std::vector<std::unique_ptr<RunningProgram>> agents;
      agents.reserve(2);
      for (int host = 0; host < 2; ++host) {
        std::vector<std::string> agent = {"--nnodes=2", fmt::format("--node-rank={}", host),
                                          "--master-addr=node1", key_file()};
        agent.insert(agent.end(), name.begin(), name.end());
        agents.push_back(start(host, training(agent, output, further)));
      }
      output_.clear();
      for (const auto& agent : agents) {
        EXPECT_EQ(agent->wait(), 0) << agent->output();
        output_ += agent->output();
      }
    };
    launch({"--overwrite_output_dir", "--learning_rate=1e-3"});
    const testing::ScopedFault fault(once("step.begin@6", output + ".once"));
    launch({"--overwrite_output_dir", "--learning_rate=2e-3"});
    EXPECT_EQ(digest(), reference) << output;
    EXPECT_THAT(output_, HasSubstr("restart 1 of 3")) << "which continues the launch";
    launch({"--learning_rate=2e-3"});
    EXPECT_EQ(digest(), reference) << output;
    EXPECT_THAT(output_, HasSubstr("resuming from")) << "continues without the flag";
  }
}

}  // namespace
}  // namespace tilewright
