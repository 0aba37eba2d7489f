// The agent with shell commands as workers, and with this test program itself as a worker that
// meets the others.
#include "worker/elastic/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>

#include "common/base/file_descriptor.h"
#include "common/base/text.h"
#include "common/contract/environment.h"
#include "tests/support/paths.h"
#include "worker/elastic/line_prefixer.h"

namespace tilewright::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Environment no_environment() {
  return [](const char*) { return std::string(); };
}

// An agent's run with its output in a file.
class AgentRun {
 public:
  explicit AgentRun(std::vector<std::string> command, int processes = 1) {
    options.command = std::move(command);
    options.nproc_per_node = processes;
    options.grace = seconds(5);
    options.restart_delay = milliseconds(1);
    options.rendezvous.last_call = milliseconds(200);
  }
  static std::vector<std::string> shell(const std::string& script) {
    return {"/bin/sh", "-c", script};
  }
  static std::vector<std::string> worker() {
    return {"/proc/self/exe", "--gtest_filter=AgentsWorker.LivesWhenAnAgentStartsIt"};
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

  AgentOptions options;
  testing::TemporaryDirectory folder;
  StopSignals signals;
};

// What the agent starts in the tests below: a worker that joins, dies once where it is told to, and
// finishes.
TEST(AgentsWorker, LivesWhenAnAgentStartsIt) {
  if (environment_variable(env::kRendezvous).empty()) return;  // an ordinary run of this program
  const StopSignals signals;
  Session session(settings_from_environment(environment_variable), "avx2", &signals,
                  make_silent_logger());
  session.listen_at({session.address().host, 29500});
  while (const auto assignment = session.join(-1)) {
    fmt::print("epoch {} rank {} of {}, local {} of {}\n", assignment->epoch, assignment->rank,
               assignment->world, assignment->local_rank, assignment->local_world);
    std::fflush(stdout);
    const bool first_life = environment_variable(env::kTorchelasticRestartCount) == "0";
    const bool fatal = environment_variable("DIES") == environment_variable(env::kLocalRank);
    if (first_life && fatal) raise(SIGKILL);
    if (first_life && !environment_variable("DIES").empty() && assignment->epoch == 1) {
      ASSERT_EQ(net::wait_ready(session.epoch_bell().fd(), POLLIN, net::within(seconds(20))),
                net::Ready::kYes);
      continue;
    }
    if (session.finish()) return;
  }
}

TEST(LinePrefixer, PutsThePrefixBeforeEachLineHoweverItComes) {
  LinePrefixer lines("> ");
  EXPECT_EQ(lines.feed("a\nb"), "> a\n");
  EXPECT_EQ(lines.feed("c\n\nd"), "> bc\n> \n");
  EXPECT_EQ(lines.flush(), "> d\n");
  EXPECT_EQ(lines.flush(), "");
  EXPECT_EQ(lines.feed(std::string(LinePrefixer::kMaxLine + 1, 'x')).size(),
            LinePrefixer::kMaxLine + 3);
  EXPECT_EQ(lines.feed("\n"), "> x\n");
}

TEST(Agent, AProgramThatIsNotThereIsNamed) {
  AgentRun run({"/nowhere/worker"});
  try {
    run();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("cannot start /nowhere/worker: No such file"));
  }
}

TEST(Agent, LinesCarryTheSeatAndProcessesTheirEnvironment) {
  AgentRun run(AgentRun::shell(
                   "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE $RANK/$WORLD_SIZE $TILEWRIGHT_WORKER_INDEX;"
                   "printf error >&2"),
               2);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("[worker 0.0] 0/2 0/2 0\n"), HasSubstr("[worker 0.1] 1/2 1/2 0\n"),
                    HasSubstr("[worker 0.1] error\n")));
}

TEST(Agent, AllThatAProcessWroteBeforeItsEndIsPassedOn) {
  AgentRun run(AgentRun::shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"));
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(run.output(), HasSubstr("[worker 0.0] line 19999\n"));
}

TEST(Agent, APermanentFailureEndsAllAndGivesItsCode) {
  AgentRun run(AgentRun::shell("if [ $LOCAL_RANK = 1 ]; then exit 13; fi; exec sleep 60"), 3);
  const MonotonicTime begin = monotonic_now();
  EXPECT_EQ(run(), 13);
  EXPECT_LT(monotonic_now() - begin, seconds(20));
}

TEST(Agent, APassingFailureIsStartedAgain) {
  AgentRun run({});
  run.options.command = AgentRun::shell(
      fmt::format("echo life >> {0}; [ $(wc -l < {0}) = 3 ] || kill -9 $$", run.path("lives")));
  EXPECT_EQ(run(), 0);
}

TEST(Agent, WithoutARestartLeftTheFailureIsFinal) {
  AgentRun run(AgentRun::shell("echo life; exit 144"));
  run.options.max_restarts = 2;
  EXPECT_EQ(run(), 144);
  const std::string output = run.output();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 3);
}

TEST(Agent, ASignalIsPassedOn) {
  AgentRun run(
      AgentRun::shell("trap 'echo got it; exit 0' TERM; kill -TERM $PPID;"
                      "while true; do sleep 0.01; done"));
  EXPECT_EQ(run(), 143);
  EXPECT_THAT(run.output(), HasSubstr("got it"));
}

TEST(Agent, WhoeverIgnoresTheSignalIsKilled) {
  AgentRun run(AgentRun::shell("trap '' TERM; kill -TERM $PPID; while true; do sleep 0.01; done"));
  run.options.grace = milliseconds(100);
  EXPECT_EQ(run(), 143);
}

TEST(Agent, WorkersMeetAtItsRendezvous) {
  AgentRun run(AgentRun::worker(), 2);
  EXPECT_EQ(run(), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[worker 0.0] epoch 1 rank 0 of 2, local 0 of 2"),
                                  HasSubstr("[worker 0.1] epoch 1 rank 1 of 2, local 1 of 2")));
}

TEST(Agent, AKilledWorkerIsStartedAgainAndTheOthersWaitForIt) {
  AgentRun run(AgentRun::worker(), 2);
  setenv("DIES", "1", 1);
  const int code = run();
  unsetenv("DIES");
  EXPECT_EQ(code, 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[worker 0.0] epoch 2 rank 0 of 2"),
                                  HasSubstr("[worker 0.1] epoch 2 rank 1 of 2")));
}

TEST(Agent, TwoHostsMeetAtTheFirst) {
  const std::uint16_t port = net::Listener::bind({"127.0.0.1", 0}).or_throw().local_address().port;
  AgentRun run(AgentRun::worker());
  run.options.max_nodes = run.options.min_nodes = 2;
  run.options.rdzv_id = "run-7";
  run.options.rdzv_key_file = run.path("key");
  run.options.rdzv_endpoint = net::Address{"127.0.0.1", port};
  std::ofstream(run.path("key")) << "0123456789abcdef0123456789abcdef";
  const FileDescriptor nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  AgentOptions second = run.options;
  second.node_rank = 1;
  second.output_fd = second.error_fd = nowhere.get();
  auto other = std::async(std::launch::async,
                          [&] { return run_agent(second, run.signals, make_silent_logger()); });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(other.get(), 0);
  EXPECT_THAT(run.output(), HasSubstr("[worker 0.0] epoch 1 rank 0 of 2, local 0 of 1"));
}

TEST(Agent, PutsItsWorkersUnderTlsWhenAskedTo) {
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

TEST(Agent, MakesAKeyForItsOwnerOnly) {
  AgentRun run(AgentRun::shell("true"));
  run.options.rdzv_key_file = run.path("key");
  EXPECT_EQ(run(), 0);
  struct stat status {};
  ASSERT_EQ(stat(run.path("key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 64);
}

TEST(Agent, InAPodItLeavesTheRendezvousToTheOperator) {
  AgentOptions options;
  options.command = {"/bin/true"};
  complete_options(options, [](const char* name) -> std::string {
    if (name == std::string(env::kRendezvous)) return "10.0.0.9:29400";
    if (name == std::string(env::kWorkerIndex)) return "4";
    if (name == std::string(env::kTls)) return "true";
    if (name == std::string(env::kJobUid) || name == std::string(env::kJobKeyFile)) return "x";
    return "";
  });
  EXPECT_TRUE(options.coordinated);
  EXPECT_EQ(options.worker_index, 4);
}

TEST(Agent, OptionsThatDoNotGoTogetherAreRefused) {
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
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nodes(o, "2:x"); }), HasSubstr("\"2:x\""));
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nodes(o, "4:2"); }), HasSubstr("above"));
  EXPECT_THAT(refusal([](AgentOptions& o) { set_nodes(o, "2"); }), HasSubstr("--rdzv_endpoint"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.nproc_per_node = 0; }),
              HasSubstr("--nproc_per_node"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.node_rank = 1; }), HasSubstr("--node_rank is 1"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.command.clear(); }), HasSubstr("no command"));
  EXPECT_THAT(refusal([](AgentOptions& o) { o.rdzv_id = "a b"; }), HasSubstr("--rdzv_id"));
  EXPECT_EQ(refusal([](AgentOptions& o) { set_rdzv_conf(o, "tsl=true"); }),
            "--rdzv_conf: found the key \"tsl\", expected tls; did you mean tls?");
}

}  // namespace
}  // namespace tilewright::elastic
