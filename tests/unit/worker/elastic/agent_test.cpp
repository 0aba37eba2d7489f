// The agent with shell commands as workers, and with this test program as a worker that joins the
// rendezvous.
#include "worker/elastic/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>

#include "common/base/file_descriptor.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/net/connect.h"
#include "tests/support/local_ports.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"
#include "tests/support/silent_logger.h"
#include "worker/elastic/line_prefixer.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;

GetVariable no_environment() {
  return [](const char*) { return std::string(); };
}

// Runs an agent and writes its output to a file.
class AgentRun {
 public:
  explicit AgentRun(std::vector<std::string> command, int processes = 1) {
    options.command = std::move(command);
    options.nproc_per_node = processes;
    options.grace_period = testing::kTimeout;
    options.restart_delay = milliseconds(1);
    options.rendezvous.join_quiet_period = milliseconds(200);
    // An epoch does not wait for a process whose exit the agent has reported.
    options.rendezvous.reconnect_timeout = std::chrono::hours(1);
  }
  static std::vector<std::string> shell(const std::string& script) {
    return {"/bin/sh", "-c", script};
  }
  static std::vector<std::string> worker() {
    return {"/proc/self/exe", "--gtest_filter=AgentWorker.RunsUnderAnAgent"};
  }
  int operator()() {
    const FileDescriptor file(
        open(path("output").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    options.output_fd = options.error_fd = file.get();
    complete_options(options, no_environment());
    return run_agent(options, signals, make_silent_logger());
  }
  std::string output() const { return testing::read_text(path("output")); }
  std::string path(const std::string& name) const { return folder.path() / name; }
  // As on several hosts, which need a copy of the same file.
  void write_key() {
    options.rdzv_key_file = path("key");
    std::ofstream(path("key")) << "0123456789abcdef0123456789abcdef";
  }

  AgentOptions options;
  testing::TemporaryDirectory folder;
  StopSignals signals;
};

// The worker program of the tests below: it joins, kills itself in its first run if its local rank
// is KILLED_LOCAL_RANK, waits until the FIFO in FINISH_FIFO is readable if that is set, and
// finishes.
void run_worker() {
  const StopSignals signals;
  Session session(settings_from_environment(environment_variable), &signals, make_silent_logger());
  session.set_isas({"avx2"});
  session.advertise_address({session.address().host, 29500});
  while (const auto assignment = session.join(-1)) {
    fmt::print("epoch {} rank {} of {}, local {} of {}\n", assignment->epoch, assignment->rank,
               assignment->world, assignment->local_rank, assignment->local_world);
    std::fflush(stdout);
    const bool first_run = environment_variable(env::kTorchelasticRestartCount) == "0";
    const std::string killed_rank = environment_variable("KILLED_LOCAL_RANK");
    if (first_run && killed_rank == environment_variable(env::kLocalRank)) raise(SIGKILL);
    if (first_run && !killed_rank.empty() && assignment->epoch == 1) {
      ASSERT_EQ(
          net::wait_ready(session.epoch_cancel_token().fd(), POLLIN, net::within(seconds(20))),
          net::Ready::kYes);
      continue;
    }
    if (const std::string fifo = environment_variable("FINISH_FIFO"); !fifo.empty()) {
      const FileDescriptor finish(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      std::array<pollfd, 3> fds{{{finish.get(), POLLIN, 0},
                                 {session.epoch_cancel_token().fd(), POLLIN, 0},
                                 {signals.cancel_token().fd(), POLLIN, 0}}};
      poll(fds.data(), fds.size(), net::poll_timeout(monotonic_now() + seconds(60)));
    }
    if (const auto code = session.stopped()) throw Failure(*code, "stopped by a signal");
    if (!session.epoch_ended() && session.finish()) return;
  }
}

TEST(AgentWorker, RunsUnderAnAgent) {
  if (environment_variable(env::kRendezvous).empty()) return;  // an ordinary run of this program
  try {
    run_worker();
  } catch (const Failure& failure) {
    fmt::print("{}\n", failure.what());
    std::fflush(stdout);
    std::_Exit(static_cast<int>(failure.code()));
  }
}

TEST(LinePrefixer, PrefixesLinesAcrossChunks) {
  LinePrefixer lines("> ");
  EXPECT_EQ(lines.feed("a\nb"), "> a\n");
  EXPECT_EQ(lines.feed("c\n\nd"), "> bc\n> \n");
  EXPECT_EQ(lines.flush(), "> d\n");
  EXPECT_EQ(lines.flush(), "");
  EXPECT_EQ(lines.feed(std::string(LinePrefixer::kMaxLine + 1, 'x')).size(),
            LinePrefixer::kMaxLine + 3);
  EXPECT_EQ(lines.feed("\n"), "> x\n");
}

TEST(Agent, NamesAMissingProgram) {
  AgentRun run({"/nowhere/worker"});
  try {
    run();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("cannot start /nowhere/worker: No such file"));
  }
}

TEST(Agent, SaysWhatToDoAboutAKeyFileThatHoldsNoSecret) {
  AgentRun run(AgentRun::shell("true"));
  run.options.rdzv_key_file = run.path("key");
  std::ofstream(run.path("key")) << "0123";
  try {
    run();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("--rdzv_key_file: " + run.path("key") +
                                                ": found a secret of 4 bytes, expected 16 to 4096"),
                                      HasSubstr("delete the file, and the agent makes a new one")));
  }
  EXPECT_EQ(testing::read_text(run.path("key")), "0123");
  std::filesystem::remove(run.path("key"));
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(testing::read_text(run.path("key")).size(), 64U);
}

TEST(Agent, PrefixesLinesAndSetsTheEnvironment) {
  AgentRun run(AgentRun::shell(
                   "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE $RANK/$WORLD_SIZE $TILEWRIGHT_WORKER_INDEX;"
                   "printf error >&2"),
               2);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("[worker 0.0] 0/2 0/2 0\n"), HasSubstr("[worker 0.1] 1/2 1/2 0\n"),
                    HasSubstr("[worker 0.1] error\n")));
}

TEST(Agent, ForwardsAllOutputWrittenBeforeExit) {
  AgentRun run(AgentRun::shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"));
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(run.output(), HasSubstr("[worker 0.0] line 19999\n"));
}

TEST(Agent, ReturnsTheExitCodeOfAPermanentFailure) {
  AgentRun run(AgentRun::shell("if [ $LOCAL_RANK = 1 ]; then exit 13; fi; exec sleep 1000"), 3);
  EXPECT_EQ(run(), 13);
}

TEST(Agent, RestartsAfterARetryableFailure) {
  AgentRun run({});
  run.options.command = AgentRun::shell(
      fmt::format("echo started >> {0}; [ $(wc -l < {0}) = 3 ] || kill -9 $$", run.path("starts")));
  EXPECT_EQ(run(), 0);
}

TEST(Agent, FailsWhenRestartsAreExhausted) {
  AgentRun run(AgentRun::shell("echo started; exit 144"));
  run.options.max_restarts = 2;
  EXPECT_EQ(run(), 144);
  const std::string output = run.output();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 3);
}

TEST(Agent, ForwardsSignals) {
  AgentRun run(
      AgentRun::shell("trap 'echo received; exit 0' TERM; kill -TERM $PPID;"
                      "while true; do sleep 0.01; done"));
  EXPECT_EQ(run(), 143);
  EXPECT_THAT(run.output(), HasSubstr("received"));
}

TEST(Agent, KillsProcessesThatIgnoreTheSignal) {
  AgentRun run(AgentRun::shell("trap '' TERM; kill -TERM $PPID; while true; do sleep 0.01; done"));
  run.options.grace_period = milliseconds(100);
  EXPECT_EQ(run(), 143);
}

TEST(Agent, ServesTheRendezvousForItsWorkers) {
  AgentRun run(AgentRun::worker(), 2);
  EXPECT_EQ(run(), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[worker 0.0] epoch 1 rank 0 of 2, local 0 of 2"),
                                  HasSubstr("[worker 0.1] epoch 1 rank 1 of 2, local 1 of 2")));
}

TEST(Agent, RestartsAKilledWorkerWhileTheOthersWait) {
  AgentRun run(AgentRun::worker(), 2);
  setenv("KILLED_LOCAL_RANK", "1", 1);
  const int code = run();
  unsetenv("KILLED_LOCAL_RANK");
  EXPECT_EQ(code, 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[worker 0.0] epoch 2 rank 0 of 2"),
                                  HasSubstr("[worker 0.1] epoch 2 rank 1 of 2")));
}

TEST(Agent, TwoHostsJoinTheRendezvousOfTheFirstHost) {
  const testing::ReservedPort port;
  AgentRun run(AgentRun::worker());
  run.options.max_nodes = run.options.min_nodes = 2;
  run.options.rdzv_id = "run-7";
  run.options.rdzv_endpoint = net::Address{"127.0.0.1", port.number()};
  run.write_key();
  const FileDescriptor dev_null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  AgentOptions second = run.options;
  second.node_rank = 1;
  second.output_fd = second.error_fd = dev_null.get();
  auto other = std::async(std::launch::async,
                          [&] { return run_agent(second, run.signals, make_silent_logger()); });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(other.get(), 0);
  EXPECT_THAT(run.output(), HasSubstr("[worker 0.0] epoch 1 rank 0 of 2, local 0 of 1"));
}

// As two hosts with the flags of torchrun's c10d: the first one serves, the second gets an index.
TEST(Agent, AHostWithoutANodeRankGetsItsIndexFromTheRendezvous) {
  const testing::ReservedPort port;
  AgentRun run(AgentRun::worker());
  run.options.max_nodes = 4;
  run.options.serving = Serving::kByAddress;
  run.options.rdzv_endpoint = net::Address{"localhost", port.number()};
  run.write_key();
  // The epoch forms only when both hosts are there.
  run.options.min_nodes = 2;
  run.options.rendezvous.recovery_timeout = milliseconds(200);
  AgentOptions second = run.options;
  second.rdzv_id = "none";
  const FileDescriptor file(open(run.path("second").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  second.output_fd = second.error_fd = file.get();
  auto other = std::async(std::launch::async, [&] {
    // Served by the agent below: its port is taken, so this one joins, whichever comes first.
    return run_agent(second, run.signals, make_silent_logger());
  });
  EXPECT_EQ(run(), 0) << run.output();
  EXPECT_EQ(other.get(), 0);
  const std::string both = run.output() + testing::read_text(run.path("second"));
  EXPECT_THAT(both, AllOf(HasSubstr("[worker 0.0] epoch 1 rank 0 of 2"),
                          HasSubstr("[worker 1.0] epoch 1 rank 1 of 2")));
}

// In /etc/hosts of Debian a host's own name stands for 127.0.1.1, at which no other host can
// connect.
TEST(Agent, GivesItsProcessesAnAddressThatOtherHostsReach) {
  const std::vector<std::string> reachable = reachable_addresses();
  const testing::ReservedPort port;
  for (const int hosts : {1, 2}) {
    AgentRun run(AgentRun::shell("echo $TILEWRIGHT_RENDEZVOUS $MASTER_ADDR"));
    run.options.min_nodes = 1;
    run.options.max_nodes = hosts;
    run.options.rdzv_endpoint = net::Address{"127.0.1.1", port.number()};
    run.write_key();
    EXPECT_EQ(run(), 0);
    const std::string host = hosts == 1 || reachable.empty() ? "127.0.1.1" : reachable.front();
    EXPECT_THAT(run.output(), HasSubstr(net::to_string({host, port.number()}) + " " + host + "\n"));
  }
}

TEST(Agent, TellsTheOtherHostsOfAPermanentFailure) {
  const testing::ReservedPort port;
  AgentRun run(AgentRun::worker());
  run.options.max_nodes = run.options.min_nodes = 2;
  run.options.rdzv_endpoint = net::Address{"127.0.0.1", port.number()};
  run.options.rdzv_id = "none";
  run.write_key();
  AgentOptions second = run.options;
  second.command = AgentRun::shell("exit 13");
  second.node_rank = 1;
  const FileDescriptor dev_null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  second.output_fd = second.error_fd = dev_null.get();
  auto first = std::async(std::launch::async, [&] { return run(); });
  const net::Wait wait = net::within(seconds(20));
  ASSERT_TRUE(net::connect_to({"127.0.0.1", port.number()}, wait, net::Retry::kUntilDeadline).ok());
  EXPECT_EQ(run_agent(second, run.signals, make_silent_logger()), 13);
  EXPECT_NE(first.get(), 0);
  EXPECT_THAT(run.output(), HasSubstr("process 0 of worker 1 exited with code 13"));
}

// Hosts of one job, with agents in this process whose output and log go to a pipe each. Their
// processes train until finish().
class Hosts {
 public:
  explicit Hosts(int count) : run(AgentRun::worker()) {
    const std::string fifo = run.path("finish");
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    finish_ = FileDescriptor(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    setenv("FINISH_FIFO", fifo.c_str(), 1);
    run.options.min_nodes = run.options.max_nodes = count;
    run.options.rdzv_endpoint = net::Address{"127.0.0.1", port_.number()};
    run.options.rdzv_id = "none";
    run.write_key();
  }
  // Agents whose exit code the test has not read are stopped.
  ~Hosts() {
    unsetenv("FINISH_FIFO");
    if (std::ranges::any_of(agents_, [](const auto& entry) { return entry.second.exit.valid(); }))
      raise(SIGTERM);
    for (auto& [name, agent] : agents_) {
      if (agent.exit.valid()) agent.exit.wait();
    }
  }
  // The byte stays unread, so that all processes see it.
  void finish() const { EXPECT_EQ(write(finish_.get(), "\n", 1), 1); }
  void start(const std::string& name, int node_rank, Serving serving) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    ASSERT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    agents_[name] = {FileDescriptor(ends[0]),
                     FileDescriptor(ends[1]),
                     {},
                     std::async(std::launch::async, [this, node_rank, serving, fd = ends[1]] {
                       AgentOptions options = run.options;
                       options.node_rank = node_rank;
                       options.serving = serving;
                       options.output_fd = options.error_fd = fd;
                       complete_options(options, no_environment());
                       auto log = std::make_shared<Logger>(
                           "agent", std::make_shared<spdlog::sinks::basic_file_sink_mt>(
                                        fmt::format("/proc/self/fd/{}", fd)));
                       log->flush_on(spdlog::level::info);
                       try {
                         return run_agent(options, run.signals, log);
                       } catch (const Failure& failure) {
                         log->error("{}", failure.what());
                         return static_cast<int>(failure.code());
                       }
                     })};
  }
  const std::string& output(const std::string& name) {
    Agent& of = agents_.at(name);
    std::array<char, 4096> part;
    for (ssize_t got = 0; (got = read(of.read_end.get(), part.data(), part.size())) > 0;) {
      of.text.append(part.data(), static_cast<std::size_t>(got));
    }
    return of.text;
  }
  ::testing::AssertionResult prints(const std::string& name, const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    while (output(name).find(text) == std::string::npos) {
      if (testing::wait_readable(agents_.at(name).read_end.get(), deadline)) continue;
      auto failure = ::testing::AssertionFailure() << name << " has not printed " << text;
      for (const auto& [other, agent] : agents_) failure << "\n" << other << ":\n" << output(other);
      return failure;
    }
    return ::testing::AssertionSuccess();
  }
  // Waits for the end of the agent.
  int exit_code(const std::string& name) { return agents_.at(name).exit.get(); }

  AgentRun run;

 private:
  struct Agent {
    FileDescriptor read_end, write_end;
    std::string text;
    std::future<int> exit;
  };
  testing::ReservedPort port_;
  FileDescriptor finish_;
  std::map<std::string, Agent> agents_;
};

TEST(Agent, EndsAloneWhenAnotherAgentHasReplacedItsProcess) {
  Hosts hosts(2);
  hosts.start("first", 0, Serving::kByRank);
  hosts.start("second", 1, Serving::kByRank);
  ASSERT_TRUE(hosts.prints("second", "epoch 1 rank 1 of 2"));
  hosts.start("newer", 1, Serving::kByRank);
  ASSERT_TRUE(hosts.prints("newer", "epoch 2 rank 1 of 2"));
  EXPECT_EQ(hosts.exit_code("second"), static_cast<int>(ExitCode::kReplaced));
  EXPECT_THAT(hosts.output("second"),
              HasSubstr("a newer process has replaced process 0 of worker 1; this agent ends and "
                        "the job continues with the newer process"));
  hosts.finish();
  EXPECT_EQ(hosts.exit_code("first"), 0) << hosts.output("first");
  EXPECT_EQ(hosts.exit_code("newer"), 0) << hosts.output("newer");
}

TEST(Agent, ServesTheRendezvousUntilTheEndOfAJobThatReplacedItsProcess) {
  Hosts hosts(2);
  hosts.start("serving", 0, Serving::kByRank);
  hosts.start("second", 1, Serving::kByRank);
  ASSERT_TRUE(hosts.prints("second", "epoch 1 rank 1 of 2"));
  hosts.start("newer", 0, Serving::kNever);
  ASSERT_TRUE(hosts.prints("newer", "epoch 2 rank 0 of 2"));
  ASSERT_TRUE(hosts.prints("serving", "this agent serves the rendezvous until the job has ended"));
  hosts.finish();
  EXPECT_EQ(hosts.exit_code("newer"), 0) << hosts.output("newer");
  EXPECT_EQ(hosts.exit_code("second"), 0) << hosts.output("second");
  EXPECT_EQ(hosts.exit_code("serving"), static_cast<int>(ExitCode::kReplaced));
}

TEST(Agent, SaysWhichRendezvousItCannotReach) {
  const testing::ReservedPort port;
  AgentRun run(AgentRun::worker());
  run.options.max_nodes = run.options.min_nodes = 2;
  run.options.serving = Serving::kNever;
  run.options.rdzv_endpoint = net::Address{"127.0.0.1", port.number()};
  run.options.rdzv_timeout = milliseconds(300);
  run.write_key();
  try {
    run();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(),
                HasSubstr(fmt::format("--rdzv_endpoint 127.0.0.1:{}: ", port.number())));
  }
}

// The layout of torchrun: RUNID_xxxxxx/attempt_N/LOCAL_RANK/stdout.log.
TEST(Agent, WritesLogsInTheLayoutOfTorchrun) {
  AgentRun run({}, 2);
  run.options.command = AgentRun::shell(
      fmt::format("echo out $LOCAL_RANK; echo err $LOCAL_RANK >&2;"
                  "if [ $LOCAL_RANK = 1 ] && ! [ -e {0} ]; then echo > {0}; kill -9 $$; fi",
                  run.path("killed")));
  run.options.rdzv_id = "run-7";
  run.options.logs.directory = run.path("logs");
  run.options.logs.redirects = parse_streams("--redirects", "0:1");
  run.options.logs.tee = parse_streams("--tee", "1:3");
  EXPECT_EQ(run(), 0);
  const auto found = std::filesystem::directory_iterator(run.path("logs"));
  const std::filesystem::path directory = found->path();
  EXPECT_TRUE(directory.filename().string().starts_with("run-7_"));
  const auto text = [&](const char* name) { return testing::read_text(directory / name); };
  EXPECT_EQ(text("attempt_0/0/stdout.log"), "out 0\n");
  EXPECT_FALSE(std::filesystem::exists(directory / "attempt_0/0/stderr.log"));
  EXPECT_EQ(text("attempt_0/1/stdout.log"), "out 1\n");
  EXPECT_EQ(text("attempt_0/1/stderr.log"), "err 1\n");
  EXPECT_EQ(text("attempt_1/1/stdout.log"), "out 1\n") << "after the restart";
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("[worker 0.0] err 0\n"), HasSubstr("[worker 0.1] out 1\n"),
                    HasSubstr("[worker 0.1] err 1\n"), ::testing::Not(HasSubstr("out 0"))));
}

TEST(Agent, RestartsWithoutLogsThatCannotBeCreated) {
  AgentRun run({}, 2);
  run.options.command = AgentRun::shell(
      fmt::format("if [ $LOCAL_RANK = 0 ]; then until [ -e {0} ]; do sleep 0.01; done; exit 0; fi;"
                  "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || {{ echo > {0}; exit 0; }};"
                  "run=$(echo {1}/*); rm -r $run; echo > $run; kill -9 $$",
                  run.path("restarted"), run.path("logs")));
  run.options.logs.directory = run.path("logs");
  run.options.logs.redirects = parse_streams("--redirects", "3");
  EXPECT_EQ(run(), 0);
  EXPECT_TRUE(std::filesystem::exists(run.path("restarted")));
}

// A program that local rank 1 moves away before it dies in its first run.
class AgentWithAMovedProgram : public ::testing::Test {
 protected:
  AgentWithAMovedProgram() {
    run_.options.command = {run_.path("worker")};
    run_.options.nproc_per_node = 2;
  }
  int run(const std::string& first_rank) {
    std::ofstream(run_.path("worker"))
        << "#!/bin/sh\ncd " << run_.folder.path().string() << "\n"
        << "if [ $LOCAL_RANK = 0 ]; then\n"
        << first_rank << "\nelif [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n"
        << "until [ -e ready ]; do sleep 0.01; done; mv worker moved; kill -9 $$\nfi\n"
        << "echo done\n";
    std::filesystem::permissions(run_.path("worker"), std::filesystem::perms::owner_all);
    return run_();
  }
  AgentRun run_{{}};
};

TEST_F(AgentWithAMovedProgram, RestartsItWhenTheProgramIsBack) {
  run_.options.max_restarts = 100;
  EXPECT_EQ(
      run("echo > ready; until [ -e moved ]; do sleep 0.01; done; sleep 0.1; mv moved worker"), 0);
  EXPECT_THAT(run_.output(),
              AllOf(HasSubstr("[worker 0.0] done\n"), HasSubstr("[worker 0.1] done\n")));
}

TEST_F(AgentWithAMovedProgram, StopsTheOthersWithASignalWhenNoRestartsAreLeft) {
  run_.options.max_restarts = 3;
  EXPECT_EQ(run("trap 'echo stopped; exit 0' TERM; echo > ready; while true; do sleep 0.01; done"),
            kSignalExitCodeBase + SIGKILL);
  EXPECT_THAT(run_.output(), HasSubstr("[worker 0.0] stopped\n"));
}

TEST(Agent, ShowsOnlyTheRanksOfTheFilterUnderTheirRole) {
  AgentRun run(AgentRun::shell("echo rank $LOCAL_RANK"), 3);
  run.options.role = "trainer";
  run.options.logs.shown_ranks = std::set<int>{1};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run.output(), "[trainer 0.1] rank 1\n");
}

TEST(Agent, GivesItsProcessesPortsAndAnAddress) {
  AgentRun run(AgentRun::shell("echo at $TILEWRIGHT_TRANSPORT_ADDRESS:$TILEWRIGHT_TRANSPORT_PORT"));
  const auto free = find_free_ports(20000, 29000, 2);
  ASSERT_TRUE(free);
  // The rendezvous takes the first port.
  const auto second = static_cast<std::uint16_t>(*free + 1);
  run.options.ports = {*free, second};
  run.options.local_addr = "127.0.0.1";
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run.output(), fmt::format("[worker 0.0] at 127.0.0.1:{}\n", second));
}

// A host group holds the other end of the agent's standard input.
TEST(Agent, StopsWhenItsControlPipeCloses) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  AgentRun run(AgentRun::shell("exec sleep 1000"));
  run.options.control_fd = reader.get();
  auto closer = std::async(std::launch::async, [&] { writer.reset(); });
  EXPECT_EQ(run(), 143);
}

TEST(Agent, EnablesTlsForItsWorkers) {
  {
    AgentRun run(AgentRun::worker());
    run.options.nproc_per_node = 2;
    set_rdzv_conf(run.options, "tls=true");
    EXPECT_EQ(run(), 0) << run.output();
    EXPECT_THAT(run.output(), AllOf(HasSubstr("[worker 0.0] epoch 1 rank 0 of 2"),
                                    HasSubstr("[worker 0.1] epoch 1 rank 1 of 2")));
  }
  AgentRun run(AgentRun::shell("echo tls is $TILEWRIGHT_TLS"));
  set_rdzv_conf(run.options, "tls=true");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(run.output(), HasSubstr("tls is true"));
}

TEST(Agent, CreatesAKeyFileReadableByTheOwnerOnly) {
  AgentRun run(AgentRun::shell("true"));
  run.options.rdzv_key_file = run.path("key");
  EXPECT_EQ(run(), 0);
  struct stat status {};
  ASSERT_EQ(stat(run.path("key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 64);
}

TEST(Agent, UsesTheOperatorsRendezvousInAPod) {
  AgentOptions options;
  options.command = {"/bin/true"};
  complete_options(options, [](const char* name) -> std::string {
    if (name == std::string(env::kRendezvous)) return "10.0.0.9:29400";
    if (name == std::string(env::kWorkerIndex)) return "4";
    if (name == std::string(env::kTls)) return "true";
    if (name == std::string(env::kJobUid) || name == std::string(env::kJobKeyFile)) return "x";
    return "";
  });
  EXPECT_TRUE(options.external_rendezvous);
  EXPECT_EQ(options.worker_index, 4);
}

TEST(Agent, RefusesConflictingOptions) {
  const auto refusal = [](const std::function<void(AgentOptions&)>& change) -> std::string {
    AgentOptions options;
    options.command = {"/bin/true"};
    try {
      change(options);
      complete_options(options, no_environment());
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](AgentOptions&) {}), "");
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nnodes(o, "2:x"); }), HasSubstr("\"2:x\""));
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nnodes(o, "4:2"); }), HasSubstr("above"));
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nnodes(o, "2"); }), HasSubstr("--rdzv_endpoint"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.nproc_per_node = 0; }),
              HasSubstr("--nproc_per_node"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.node_rank = 1; }), HasSubstr("--node_rank is 1"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.command.clear(); }), HasSubstr("no command"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.rdzv_id = "a b"; }), HasSubstr("--rdzv_id"));
  EXPECT_EQ(refusal([](AgentOptions& o) { set_rdzv_conf(o, "tsl=true"); }),
            "--rdzv_conf: found the key \"tsl\", expected one of tls, keep_alive_interval, "
            "keep_alive_max_attempt, is_host, timeout, join_timeout, last_call_timeout, "
            "close_timeout, read_timeout, store_type, rank, heartbeat_timeout; did you mean tls?");
  EXPECT_THAT(refusal([](AgentOptions& o) { set_rdzv_conf(o, "last_call_timout=5"); }),
              HasSubstr("did you mean last_call_timeout?"));
  EXPECT_EQ(refusal([](AgentOptions& o) { set_rdzv_conf(o, "tls"); }),
            "--rdzv_conf: found \"tls\", expected key=value,...");
}

}  // namespace
}  // namespace tilewright::elastic
