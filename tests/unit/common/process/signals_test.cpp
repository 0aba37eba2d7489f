#include "common/process/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "common/net/socket.h"

namespace tilewright {
namespace {

using std::chrono::seconds;

// A test that expects SIGHUP may itself run under nohup.
class DefaultHangUp {
 public:
  DefaultHangUp() : before_(signal(SIGHUP, SIG_DFL)) {}
  ~DefaultHangUp() { signal(SIGHUP, before_); }
  DefaultHangUp(const DefaultHangUp&) = delete;
  DefaultHangUp& operator=(const DefaultHangUp&) = delete;

 private:
  void (*before_)(int);
};

TEST(Signals, ArePendingUntilRead) {
  const DefaultHangUp hang_up;
  Signals signals = Signals::install().or_throw();
  EXPECT_FALSE(signals.next());
  raise(SIGHUP);
  raise(SIGTERM);
  EXPECT_EQ(net::wait_ready(signals.fd(), POLLIN, net::within(seconds(0))), net::Ready::kYes);
  std::set<int> pending;
  while (const auto number = signals.next()) pending.insert(*number);
  EXPECT_EQ(pending, (std::set<int>{SIGHUP, SIGTERM}));
}

TEST(Signals, LeaveAnIgnoredHangUpIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    Signals signals = Signals::install().or_throw();
    raise(SIGHUP);
    EXPECT_FALSE(signals.next());
  }
  {
    const StopSignals signals;
    raise(SIGHUP);
    EXPECT_FALSE(signals.stopped());
  }
  EXPECT_EQ(signal(SIGHUP, before), SIG_IGN);
}

// As when Ctrl-C ends both a training and the `tee` that reads its output.
TEST(StopSignals, AnOutputWithoutAReaderDoesNotEndTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    if (signal(SIGPIPE, SIG_DFL) == SIG_ERR || pipe(ends) != 0) _exit(1);
    close(ends[0]);
    { const StopSignals signals; }
    // Also after its lifetime: the message of a failure follows.
    _exit(write(ends[1], "\n", 1) == -1 && errno == EPIPE ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StopSignals, ASignalSetsTheFlagAndTheCancelToken) {
  const DefaultHangUp hang_up;
  for (const auto& [number, code] : {std::pair(SIGTERM, ExitCode::kTerminated),
                                     {SIGINT, ExitCode::kInterrupted},
                                     {SIGHUP, ExitCode::kTerminated}}) {
    const StopSignals signals;
    EXPECT_FALSE(signals.stopped());
    EXPECT_FALSE(signals.exit_code());
    raise(number);
    EXPECT_EQ(signals.number(), number);
    EXPECT_EQ(signals.exit_code(), code);
    EXPECT_EQ(net::wait_ready(signals.cancel_token().fd(), POLLIN, net::within(seconds(0))),
              net::Ready::kYes);
  }
}

TEST(StopSignals, TheFirstSignalWinsAndItsRepeatEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals(Duration::zero());
    raise(SIGTERM);
    raise(SIGINT);
    if (signals.number() != SIGTERM) _exit(1);
    raise(SIGTERM);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

// As from timeout(1).
TEST(StopSignals, ASecondSignalOfTheSameRequestIsIgnored) {
  const StopSignals signals(std::chrono::hours(1));
  for (int i = 0; i < 3; ++i) raise(SIGTERM);
  EXPECT_EQ(signals.number(), SIGTERM);
}

// As in a container, where the kernel ignores the default action of a signal.
TEST(StopSignals, ARepeatedSignalEndsProcessOne) {
  const pid_t child = fork();
  if (child == 0) {
    // Without root, a PID namespace needs a user namespace.
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(1);
    const pid_t first = fork();
    if (first == 0) {
      if (getpid() != 1) _exit(2);
      const StopSignals signals(Duration::zero());
      raise(SIGTERM);
      if (!signals.stopped()) _exit(3);
      raise(SIGTERM);
      _exit(4);
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

}  // namespace
}  // namespace tilewright
