// The stores of several jobs over loopback. The pods have addresses of 127.0.0.0/8. The server's
// clock advances only when a test advances it.
#include "controller/operator/store_hub.h"

#include <gmock/gmock.h>

#include <functional>

#include "common/net/connect.h"
#include "tests/support/manual_clock.h"
#include "tests/support/silent_logger.h"
#include "tests/support/tcpstore_client.h"

namespace tilewright::controller {
namespace {

using tilewright::testing::make_silent_logger;
using tilewright::testing::ManualClock;
using tilewright::testing::TcpStoreClient;

constexpr const char* kFirst = "127.0.0.11";
constexpr const char* kSecond = "127.0.0.12";
constexpr const char* kOther = "127.0.0.21";
constexpr const char* kStranger = "127.0.0.99";

class StoreHubTest : public ::testing::Test {
 protected:
  void start() {
    options.clock = &clock;
    hub = StoreHub::start(options, make_silent_logger()).or_throw();
  }
  TcpStoreClient connect(const std::string& from) {
    TcpStoreClient client(hub->address(), from);
    client.validate();
    return client;
  }
  // A connection whose store has been found.
  TcpStoreClient ready(const std::string& from) {
    TcpStoreClient client = connect(from);
    client.ping();
    return client;
  }

  ManualClock clock;
  tcpstore::Server::Options options;
  std::unique_ptr<StoreHub> hub;
};

TEST_F(StoreHubTest, ThePodsOfAJobMeet) {
  start();
  hub->serve("job", {kFirst, kSecond});
  TcpStoreClient first = ready(kFirst), second = ready(kSecond);
  first.set("/key", "value");
  first.ping();
  EXPECT_EQ(second.get("/key"), "value");
  EXPECT_EQ(hub->connections(), 2u);
}

TEST_F(StoreHubTest, JobsWithTheSameKeysDoNotSeeEachOther) {
  start();
  hub->serve("job", {kFirst});
  hub->serve("other", {kOther});
  TcpStoreClient first = ready(kFirst), other = ready(kOther);
  first.set("/torch.rendezvous.run", "of job");
  first.ping();
  EXPECT_EQ(other.number_of_keys(), 0);
  other.set("/torch.rendezvous.run", "of other");
  other.ping();
  EXPECT_EQ(first.get("/torch.rendezvous.run"), "of job");
}

TEST_F(StoreHubTest, AnotherAddressIsNotServedAndCloses) {
  start();
  hub->serve("job", {kFirst});
  TcpStoreClient stranger = connect(kStranger);
  stranger.start_wait({"/key"});
  TcpStoreClient member = ready(kFirst);  // accepted after the stranger
  EXPECT_EQ(hub->connections(), 1u) << "only that of the member";
  clock.advance(options.address_timeout);
  EXPECT_TRUE(stranger.closed());
  EXPECT_EQ(hub->rejections().at("address"), 1u);
  member.ping();
}

// A pod may connect before the operator has seen its address.
TEST_F(StoreHubTest, APodMayConnectBeforeItsAddressIsKnown) {
  start();
  TcpStoreClient early = connect(kFirst);
  early.set("/key", "value");
  hub->serve("job", {kFirst});
  EXPECT_EQ(early.get("/key"), "value");
}

TEST_F(StoreHubTest, APodThatHasEndedIsDisconnected) {
  start();
  hub->serve("job", {kFirst, kSecond});
  TcpStoreClient first = ready(kFirst), second = ready(kSecond);
  second.set("/key", "value");
  second.ping();
  hub->serve("job", {kSecond});
  EXPECT_TRUE(first.closed());
  EXPECT_EQ(second.get("/key"), "value");
}

TEST_F(StoreHubTest, ClosesAJob) {
  start();
  hub->serve("job", {kFirst});
  hub->serve("other", {kOther});
  TcpStoreClient first = ready(kFirst), other = ready(kOther);
  first.set("/key", "value");
  first.ping();
  hub->close("job");
  hub->close("unknown");
  EXPECT_TRUE(first.closed());
  other.ping();
  hub->serve("job", {kFirst});
  EXPECT_EQ(ready(kFirst).number_of_keys(), 0) << "a new store";
}

// A cache that is behind shows the address of a pod that has ended to two jobs.
TEST_F(StoreHubTest, AnAddressOfTwoJobsBelongsToNeither) {
  start();
  hub->serve("job", {kFirst, kSecond});
  TcpStoreClient first = ready(kFirst), second = ready(kSecond);
  hub->serve("other", {kFirst});
  EXPECT_TRUE(first.closed());
  second.ping();
  TcpStoreClient waits = connect(kFirst);
  waits.set("/key", "of other");
  second.ping();
  hub->serve("job", {kSecond});
  EXPECT_EQ(waits.get("/key"), "of other");
  EXPECT_EQ(second.number_of_keys(), 0);
}

TEST_F(StoreHubTest, ComparesAddressesAndNotTheirText) {
  start();
  hub->serve("job", {"::ffff:127.0.0.11"});
  ready(kFirst);
  hub->serve("job", {"::ffff:7f00:c"});
  ready(kSecond);
  hub->serve("other", {"0:0:0:0:0:0:0:1", "not an address", ""});
  EXPECT_EQ(hub->rejections().at("address"), 0u);
  if (!net::Listener::bind({"::", 0}).ok()) return;  // no IPv6 here
  options.listen = {"::", 0};
  start();
  hub->serve("job", {kFirst});
  ready(kFirst);  // an IPv4 client of an IPv6 socket
}

TEST_F(StoreHubTest, AJobHasAShareOfConnectionsAndKeys) {
  options.store_share.connections = 2;
  options.store_limits.keys = 3;
  options.store_limits.bytes = 4 << 10;
  start();
  hub->serve("job", {kFirst, kSecond});
  hub->serve("other", {kOther});
  TcpStoreClient first = ready(kFirst), second = ready(kSecond), third = connect(kFirst);
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(hub->rejections().at("job_connections"), 1u);
  for (const char* key : {"/a", "/b", "/c", "/d"}) first.set(key, "");
  EXPECT_TRUE(first.closed());
  second.set("/a", std::string(8 << 10, 'x'));
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(hub->rejections().at("job_data"), 2u);
  ready(kOther).set("/a", "");
}

TEST(EndOfAnAgent, FollowsFromTheLossOfItsStore) {
  using std::chrono::seconds;
  const WallTime opened = wall_now();
  policy::Worker worker;
  worker.phase = policy::WorkerPhase::kFailed;
  worker.exit_code = 1;
  worker.started = opened - seconds(100);
  worker.finished = opened - seconds(3);
  EXPECT_TRUE(ended_with_its_store(worker, opened));
  worker.finished = opened + seconds(40);
  EXPECT_TRUE(ended_with_its_store(worker, opened));
  const std::function<void(policy::Worker&)> changes[] = {
      [&](auto& changed) { changed.started = opened + seconds(1); },
      [&](auto& changed) { changed.finished = opened + seconds(61); },
      [](auto& changed) { changed.exit_code = 137; },
      [](auto& changed) { changed.phase = policy::WorkerPhase::kRunning; },
      [](auto& changed) { changed.started.reset(); }};
  for (const auto& change : changes) {
    policy::Worker changed = worker;
    change(changed);
    EXPECT_FALSE(ended_with_its_store(changed, opened));
  }
}

TEST_F(StoreHubTest, ReportsAnAddressInUse) {
  start();
  const auto second = StoreHub::start(hub->address(), make_silent_logger());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
}

}  // namespace
}  // namespace tilewright::controller
