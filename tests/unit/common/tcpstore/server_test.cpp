// The server over loopback. Clients of 127.0.0.1 belong to job-1, those of 127.0.0.2 to job-2. The
// server's clock advances only when a test advances it.
#include "common/tcpstore/server.h"

#include <gmock/gmock.h>

#include <map>
#include <mutex>

#include "tests/support/manual_clock.h"
#include "tests/support/silent_logger.h"
#include "tests/support/tcpstore_client.h"

namespace tilewright::tcpstore {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::encode;
using tilewright::testing::make_silent_logger;
using tilewright::testing::ManualClock;
using tilewright::testing::TcpStoreClient;

class TcpStoreServer : public ::testing::Test {
 protected:
  void start() {
    options.clock = &clock;
    server = Server::start(
                 options,
                 [this](const net::Address& peer) -> std::optional<StoreId> {
                   const std::scoped_lock lock(mutex);
                   const auto found = jobs.find(peer.host);
                   return found == jobs.end() ? std::nullopt : std::optional(found->second);
                 },
                 make_silent_logger())
                 .or_throw();
  }
  TcpStoreClient connect(const std::string& from = "127.0.0.1") {
    TcpStoreClient client(server->address(), from);
    client.validate();
    return client;
  }
  // A connection that the server has accepted.
  TcpStoreClient ready(const std::string& from = "127.0.0.1") {
    TcpStoreClient client = connect(from);
    client.ping();
    return client;
  }
  void add_address(const std::string& host, const StoreId& id) {
    {
      const std::scoped_lock lock(mutex);
      jobs[host] = id;
    }
    server->addresses_changed();
  }
  void remove_address(const std::string& host) {
    {
      const std::scoped_lock lock(mutex);
      jobs.erase(host);
    }
    server->addresses_changed();
  }
  std::uint64_t rejected(const std::string& reason) { return server->rejections().at(reason); }

  ManualClock clock;
  Server::Options options;
  std::mutex mutex;
  std::map<std::string, StoreId> jobs{{"127.0.0.1", "job-1"}, {"127.0.0.2", "job-2"}};
  std::unique_ptr<Server> server;
};

TEST_F(TcpStoreServer, ClientsOfAJobShareAStore) {
  start();
  TcpStoreClient first = connect(), second = connect();
  first.set("/key", "value");
  first.ping();
  EXPECT_EQ(second.get("/key"), "value");
  EXPECT_EQ(second.add("/n", 2), 2);
  EXPECT_EQ(first.add("/n", 3), 5);
}

TEST_F(TcpStoreServer, JobsAreSeparate) {
  start();
  TcpStoreClient first = connect(), second = connect("127.0.0.2");
  first.set("/key", "value");
  first.ping();
  EXPECT_EQ(second.number_of_keys(), 0);
  second.start_wait({"/key"});
  second.send({.operation = Operation::kCancelWait});
  EXPECT_EQ(second.receive(1), std::string(1, kWaitCanceled));
}

TEST_F(TcpStoreServer, AWaitEndsWithAWriteOfAnotherClient) {
  start();
  TcpStoreClient first = connect(), second = connect();
  second.start_wait({"/a", "/b"});
  first.set("/a", "");
  first.ping();
  EXPECT_FALSE(second.readable(milliseconds(20)));
  first.set("/b", "");
  second.expect_wait_ended();
}

TEST_F(TcpStoreServer, AWaitOfAClosedConnectionIsForgotten) {
  start();
  TcpStoreClient first = ready();
  {
    TcpStoreClient second = ready();
    second.start_wait({"/a"});
    second.ping();
    EXPECT_EQ(server->stores().at("job-1").waiting, 1u);
  }
  while (server->stores().at("job-1").connections > 1) first.ping();
  EXPECT_EQ(server->stores().at("job-1").waiting, 0u);
  first.set("/a", "");
  first.ping();
}

TEST_F(TcpStoreServer, AStoreEndsWithItsLastConnection) {
  start();
  {
    TcpStoreClient first = connect();
    first.set("/key", "value");
    first.ping();
  }
  TcpStoreClient other = connect("127.0.0.2");
  while (server->stores().contains("job-1")) other.ping();
  TcpStoreClient second = connect();
  EXPECT_EQ(second.number_of_keys(), 0);
}

// A pod has ended, or another job's pod has its address now.
TEST_F(TcpStoreServer, AnAddressThatLeavesItsJobIsDisconnected) {
  start();
  add_address("127.0.0.3", "job-1");
  TcpStoreClient left = ready(), moved = ready("127.0.0.3"), other = ready("127.0.0.2");
  left.set("/key", "value");
  left.ping();
  remove_address("127.0.0.1");
  EXPECT_TRUE(left.closed());
  EXPECT_EQ(moved.get("/key"), "value");
  add_address("127.0.0.3", "job-2");
  EXPECT_TRUE(moved.closed());
  EXPECT_FALSE(server->stores().contains("job-1")) << "its keys are discarded";
  TcpStoreClient again = ready("127.0.0.3");
  other.set("/key", "of job-2");
  other.ping();
  EXPECT_EQ(again.get("/key"), "of job-2");
}

TEST_F(TcpStoreServer, AnUnknownAddressIsHeldUntilItIsKnown) {
  start();
  TcpStoreClient early = connect("127.0.0.3");
  early.set("/key", "value");
  ready();  // accepted after the other
  EXPECT_TRUE(server->stores().empty() || !server->stores().contains("job-3"));
  add_address("127.0.0.3", "job-3");
  EXPECT_EQ(early.get("/key"), "value");
  EXPECT_EQ(server->stores().at("job-3").connections, 1u);
  clock.advance(options.address_timeout);
  early.ping();
  EXPECT_EQ(rejected("address"), 0u);
}

TEST_F(TcpStoreServer, AnUnknownAddressIsClosedInTheEnd) {
  start();
  TcpStoreClient stranger = connect("127.0.0.3");
  TcpStoreClient member = ready();
  clock.advance(options.address_timeout - milliseconds(1));
  member.ping();
  EXPECT_FALSE(stranger.readable(milliseconds(20)));
  clock.advance(milliseconds(1));
  EXPECT_TRUE(stranger.closed());
  EXPECT_EQ(rejected("address"), 1u);
  member.ping();
}

TEST_F(TcpStoreServer, StrangersHaveAShareOfTheConnections) {
  options.limits.unauthenticated_per_source = 2;
  options.limits.unauthenticated = 3;
  start();
  TcpStoreClient oldest = connect("127.0.0.3"), next = connect("127.0.0.3");
  TcpStoreClient newest = connect("127.0.0.3");
  EXPECT_TRUE(oldest.closed());
  EXPECT_EQ(rejected("source"), 1u);
  TcpStoreClient other = connect("127.0.0.4"), another = connect("127.0.0.5");
  EXPECT_TRUE(next.closed());
  EXPECT_EQ(rejected("unauthenticated"), 1u);
  ready();
}

TEST_F(TcpStoreServer, BoundsTheConnectionsOfAJob) {
  options.store_share.connections = 2;
  start();
  TcpStoreClient first = ready(), second = ready(), third = connect();
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(rejected("job_connections"), 1u);
  ready("127.0.0.2");
  first.ping();
}

TEST_F(TcpStoreServer, BoundsAllConnections) {
  options.limits.connections = 2;
  start();
  TcpStoreClient first = ready(), second = ready("127.0.0.2"), third = connect("127.0.0.2");
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(rejected("connections"), 1u);
}

TEST_F(TcpStoreServer, ClosesAConnectionThatBreaksTheProtocol) {
  start();
  TcpStoreClient member = ready();
  const std::string inputs[] = {
      "GET / HTTP/1.1\r\n",
      encode({.operation = Operation::kGetNumKeys}),
      encode({.operation = Operation::kValidate, .number = 1}),
      encode({.operation = Operation::kValidate, .number = kMagic}) + "\xff",
      encode({.operation = Operation::kValidate, .number = kMagic}) +
          encode({.operation = Operation::kValidate, .number = kMagic}),
      encode({.operation = Operation::kValidate, .number = kMagic}) +
          encode({.operation = Operation::kWait, .keys = {"/a"}}) +
          encode({.operation = Operation::kWait, .keys = {"/b"}}),
  };
  std::uint64_t expected = 0;
  for (const std::string& input : inputs) {
    TcpStoreClient client(server->address());
    client.send(input);
    EXPECT_TRUE(client.closed()) << input;
    EXPECT_EQ(rejected("protocol"), ++expected) << input;
  }
  member.ping();
}

TEST_F(TcpStoreServer, AStoreThatIsFullClosesTheConnectionThatWrites) {
  options.store_limits.keys = 2;
  start();
  TcpStoreClient first = ready(), second = ready();
  first.set("/a", "1");
  first.set("/b", "1");
  first.set("/c", "1");
  EXPECT_TRUE(first.closed());
  EXPECT_EQ(rejected("job_data"), 1u);
  EXPECT_EQ(second.get("/b"), "1");
  EXPECT_EQ(second.number_of_keys(), 2);
}

TEST_F(TcpStoreServer, TheLargestStoreIsDiscardedIfAllAreTooLarge) {
  options.stored_bytes = 100 << 10;
  start();
  TcpStoreClient large = ready(), small = ready("127.0.0.2");
  large.set("/key", std::string(80 << 10, 'x'));
  large.ping();
  small.set("/key", std::string(30 << 10, 'x'));
  EXPECT_TRUE(large.closed());
  small.ping();
  EXPECT_EQ(rejected("job_data"), 1u);
  EXPECT_FALSE(server->stores().contains("job-1"));
}

TEST_F(TcpStoreServer, BoundsTheUnfinishedMessagesOfAJob) {
  options.store_share.buffered_bytes = 1 << 20;
  start();
  TcpStoreClient small = ready(), large = ready();
  std::string request = encode(
      {.operation = Operation::kSet, .keys = {"/key"}, .values = {std::string(4 << 20, 'x')}});
  request.pop_back();
  large.send(request);
  EXPECT_TRUE(large.closed());
  EXPECT_EQ(rejected("job_buffers"), 1u);
  small.ping();
}

TEST_F(TcpStoreServer, BoundsTheUnfinishedMessagesOfAllJobs) {
  options.limits.buffered_bytes = 1 << 20;
  start();
  TcpStoreClient small = ready("127.0.0.2"), large = ready();
  std::string request = encode(
      {.operation = Operation::kSet, .keys = {"/key"}, .values = {std::string(4 << 20, 'x')}});
  request.pop_back();
  large.send(request);
  EXPECT_TRUE(large.closed());
  EXPECT_EQ(rejected("buffers"), 1u);
  small.ping();
}

// It stops reading the requests of a client that does not read the replies, and continues
// afterwards.
TEST_F(TcpStoreServer, AClientThatReadsSlowlyGetsAllReplies) {
  start();
  TcpStoreClient slow = ready(), other = ready();
  const std::string value(1 << 20, 'x');
  slow.set("/key", value);
  constexpr int kReads = 24;
  for (int i = 0; i < kReads; ++i) slow.send({.operation = Operation::kGet, .keys = {"/key"}});
  other.ping();
  EXPECT_LT(server->stores().at("job-1").buffered_bytes, 6u << 20);
  for (int i = 0; i < kReads; ++i) ASSERT_EQ(slow.receive_string(), value);
  EXPECT_EQ(server->rejections().at("job_buffers"), 0u);
}

TEST_F(TcpStoreServer, RequestsAboveTheRateWait) {
  options.store_share.messages_per_second = 10;
  start();
  TcpStoreClient busy = ready(), other = ready("127.0.0.2");
  std::int64_t sum = 0;
  // More than a burst of TokenBucket::kBurst.
  constexpr int kIncrements = 200;
  for (int i = 0; i < kIncrements; ++i)
    busy.send({.operation = Operation::kAdd, .keys = {"/n"}, .number = 1});
  while (sum < 90 && !HasFailure()) sum = busy.receive_number();
  other.ping();
  while (busy.readable(milliseconds(20))) sum = busy.receive_number();
  EXPECT_LE(sum, 110);
  for (int i = 0; i < 12; ++i) {
    clock.advance(seconds(1));
    other.ping();
  }
  while (sum < kIncrements && !HasFailure()) sum = busy.receive_number();
  EXPECT_EQ(sum, kIncrements);
}

}  // namespace
}  // namespace tilewright::tcpstore
