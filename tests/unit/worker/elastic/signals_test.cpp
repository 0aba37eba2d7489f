#include "worker/elastic/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/net/socket.h"

namespace tilewright::elastic {
namespace {

using std::chrono::seconds;

TEST(StopSignals, ASignalSetsTheFlagAndRingsTheBell) {
  for (const auto& [number, code] :
       {std::pair(SIGTERM, ExitCode::kTerminated), {SIGINT, ExitCode::kInterrupted}}) {
    const StopSignals signals;
    EXPECT_FALSE(signals.stopped());
    EXPECT_FALSE(signals.exit_code());
    raise(number);
    EXPECT_EQ(signals.number(), number);
    EXPECT_EQ(signals.exit_code(), code);
    EXPECT_EQ(net::wait_ready(signals.bell().fd(), POLLIN, net::within(seconds(0))),
              net::Ready::kYes);
  }
}

TEST(StopSignals, TheFirstSignalDecidesAndASecondOfItsKindEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals;
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

TEST(DieWithParent, NobodyOutlivesHisParent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t self = getpid();
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) _exit(1);
    if (fork() == 0) {
      die_with_parent(self);
      char byte = 'x';
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      while (true) pause();  // holds ends[1] open
    }
    char byte = 0;
    _exit(read(ready[0], &byte, 1) == 1 ? 0 : 1);
  }
  close(ends[1]);
  const net::FileDescriptor mine(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(net::wait_ready(mine.get(), POLLIN, net::within(seconds(10))), net::Ready::kYes);
  char byte = 0;
  EXPECT_EQ(read(mine.get(), &byte, 1), 0) << "the grandchild's end is closed";
}

}  // namespace
}  // namespace tilewright::elastic
