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

}  // namespace
}  // namespace tilewright::elastic
