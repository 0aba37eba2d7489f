// The order of the hosts. Integration tests start agents on several.
#include "worker/elastic/host_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/unit/worker/elastic/environment.h"

namespace tilewright::elastic {
namespace {

using ::testing::ElementsAre;

TEST(HostGroup, PutsThisHostFirst) {
  const StopSignals signals;
  EXPECT_THAT(this_host_first({{"192.0.2.7", 1}, {"127.0.0.1", 2}, {kNoHost, 3}}, signals),
              ElementsAre(Host{"127.0.0.1", 2, true}, Host{"192.0.2.7", 1}, Host{kNoHost, 3}));
}

TEST(HostGroup, StopsWhileItLooksUpTheHosts) {
  const StopSignals signals;
  raise(SIGINT);
  try {
    this_host_first({{kNoHost, {}}}, signals);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kInterrupted);
  }
}

}  // namespace
}  // namespace tilewright::elastic
