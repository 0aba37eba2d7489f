// Agents without a node rank get their worker index from the coordinator.
#include "common/rendezvous/index_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <set>
#include <thread>

#include "common/net/connect.h"
#include "common/rendezvous/server.h"
#include "tests/support/local_ports.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/common/rendezvous/coordinator_fixtures.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;

std::unique_ptr<Server> serve_indices(int first_index = 1, bool tls = false,
                                      std::uint16_t port = 0) {
  Server::Options options;
  options.listen = {"127.0.0.1", port};
  JobSpec job{kUid, key()};
  job.first_index = first_index;
  job.tls = tls;
  std::vector<JobSpec> jobs;
  jobs.push_back(std::move(job));
  return Server::start(options, make_silent_logger(), std::move(jobs)).or_throw();
}

Result<int> request(const net::Address& coordinator, std::uint64_t agent, bool tls = false) {
  return request_worker_index(coordinator, kUid, key(), tls, agent, net::within(kSoon));
}
Result<int> request(const Server& server, std::uint64_t agent, bool tls = false) {
  return request(server.address(), agent, tls);
}

TEST(IndexRequest, GivesEachAgentItsOwnIndex) {
  for (const bool tls : {false, true}) {
    const auto server = serve_indices(1, tls);
    EXPECT_EQ(request(*server, 11, tls).or_throw(), 1);
    EXPECT_EQ(request(*server, 12, tls).or_throw(), 2);
    EXPECT_EQ(request(*server, 11, tls).or_throw(), 1) << "the same agent asks again";
  }
}

TEST(IndexRequest, GivesDifferentIndicesToAgentsThatAskAtTheSameTime) {
  const auto server = serve_indices();
  std::vector<std::future<Result<int>>> answers;
  for (std::uint64_t agent = 0; agent < 8; ++agent)
    answers.push_back(
        std::async(std::launch::async, [&server, agent] { return request(*server, agent); }));
  std::set<int> indices;
  for (auto& answer : answers) indices.insert(answer.get().or_throw());
  EXPECT_EQ(indices, (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// An earlier coordinator gave index 1 to a host that is still there.
TEST(IndexRequest, GivesNoIndexOfAMember) {
  const auto server = serve_indices();
  const auto member = client(options(*server, 1));
  const auto joined = join_later(*member);
  ASSERT_TRUE(eventually(*server, [](const Snapshot& now) { return !now.members.empty(); }));
  EXPECT_EQ(request(*server, 11).or_throw(), 2);
}

// A coordinator of at most `hosts` hosts whose clock stands still. It may have been restarted.
struct Restarted {
  explicit Restarted(int hosts, std::uint16_t port = 0) {
    JobSpec job{kUid, key(), settings(2, 8, 8)};
    job.hosts = hosts;
    std::vector<JobSpec> jobs;
    jobs.push_back(std::move(job));
    server = Server::start({.listen = {"127.0.0.1", port}, .clock = &clock}, make_silent_logger(),
                           std::move(jobs))
                 .or_throw();
  }
  // Its request precedes those of later connections. None of the earlier ones may be closing.
  std::future<Result<int>> ask(std::uint64_t agent) {
    const std::size_t before = server->usage().connections;
    auto answer = std::async(std::launch::async, [agent, coordinator = server->address()] {
      return request(coordinator, agent);  // it may outlive this server
    });
    EXPECT_TRUE(wait_for_connections(before + 1));
    return answer;
  }
  bool wait_for_connections(std::size_t count) const {
    const MonotonicTime deadline = in(kSoon);
    while (server->usage().connections != count) {
      if (monotonic_now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static bool waits(const std::future<Result<int>>& answer) {
    return answer.wait_for(milliseconds(200)) == std::future_status::timeout;
  }
  ManualClock clock;
  std::unique_ptr<Server> server;
};

TEST(IndexRequest, WaitsForTheHostsThatKnewTheEarlierCoordinator) {
  Restarted job(3);
  auto answer = job.ask(11);
  EXPECT_TRUE(Restarted::waits(answer));
  const auto survivor = client(options(*job.server, 1));
  const auto joined = join_later(*survivor);
  EXPECT_EQ(answer.get().or_throw(), 2);
  job.server->remove_job(kUid, "the end of the test");
}

// Longer than Server::Options::join_timeout.
TEST(IndexRequest, WaitsNoLongerThanTheRecoveryTimeout) {
  Restarted job(4);
  auto answer = job.ask(11);
  EXPECT_TRUE(Restarted::waits(answer));
  job.clock.advance(Settings().recovery_timeout - seconds(1));
  EXPECT_TRUE(Restarted::waits(answer));
  job.clock.advance(seconds(1));
  EXPECT_EQ(answer.get().or_throw(), 1);
  EXPECT_EQ(request(*job.server, 12).or_throw(), 2);
}

TEST(IndexRequest, DoesNotWaitWhenAllHostsAsk) {
  Restarted job(3);
  auto first = job.ask(11);
  EXPECT_TRUE(Restarted::waits(first));
  EXPECT_EQ(request(*job.server, 12).or_throw(), 2) << "in the order of the requests";
  EXPECT_EQ(first.get().or_throw(), 1);
  EXPECT_EQ(request(*job.server, 11).or_throw(), 1);
}

TEST(IndexRequest, AnAgentThatNoLongerWaitsIsForgotten) {
  Restarted job(3);
  const auto gone = request_worker_index({"127.0.0.1", job.server->address().port}, kUid, key(),
                                         false, 11, net::within(milliseconds(300)));
  EXPECT_FALSE(gone.ok());
  ASSERT_TRUE(job.wait_for_connections(0));
  auto answer = job.ask(12);
  EXPECT_TRUE(Restarted::waits(answer)) << "only one of three hosts asks";
  job.clock.advance(Settings().recovery_timeout);
  EXPECT_EQ(answer.get().or_throw(), 1);
}

TEST(IndexRequest, WaitsForTheCoordinator) {
  const testing::ReservedPort port;
  auto early = std::async(std::launch::async, [&] {
    return request_worker_index({"127.0.0.1", port.number()}, kUid, key(), false, 1,
                                net::within(kSoon));
  });
  const auto server = serve_indices(1, false, port.number());
  EXPECT_EQ(early.get().or_throw(), 1);
}

TEST(IndexRequest, AsksTheNextCoordinatorIfTheFirstEndsBeforeItAnswers) {
  const testing::ReservedPort port;
  Restarted first(3, port.number());
  auto answer = first.ask(11);
  EXPECT_TRUE(Restarted::waits(answer));
  first.server.reset();
  const auto second = serve_indices(1, false, port.number());
  EXPECT_EQ(answer.get().or_throw(), 1);
}

// A coordinator that ends while it proves the secret.
TEST(IndexRequest, AsksAgainIfTheConnectionBreaksDuringTheProof) {
  const testing::ReservedPort port;
  net::Listener listener = net::Listener::bind({"127.0.0.1", port.number()}).or_throw();
  auto answer = std::async(std::launch::async, [&] {
    return request_worker_index({"127.0.0.1", port.number()}, kUid, key(), false, 1,
                                net::within(kSoon));
  });
  ASSERT_EQ(net::wait_ready(listener.fd(), POLLIN, net::within(kSoon)), net::Ready::kYes);
  net::Socket broken = listener.try_accept().or_throw();
  listener = {};
  broken.close();
  const auto server = serve_indices(1, false, port.number());
  EXPECT_EQ(answer.get().or_throw(), 1);
}

TEST(IndexRequest, SaysWhyItAsksAgain) {
  const testing::ReservedPort port;
  Restarted first(3, port.number());
  std::vector<std::string> reasons;
  auto answer = std::async(std::launch::async, [&] {
    return request_worker_index({"127.0.0.1", port.number()}, kUid, key(), false, 11,
                                net::within(kSoon),
                                [&](const std::string& reason) { reasons.push_back(reason); });
  });
  EXPECT_TRUE(Restarted::waits(answer));
  first.server.reset();
  const auto second = serve_indices(1, false, port.number());
  EXPECT_EQ(answer.get().or_throw(), 1);
  EXPECT_EQ(reasons.size(), 1U);
}

TEST(IndexRequest, SaysWhyThereIsNone) {
  const auto server = serve_indices(kMaxWorkerIndex);
  EXPECT_EQ(request(*server, 1).or_throw(), kMaxWorkerIndex);
  const auto none = request(*server, 2);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(none.error().message, HasSubstr("all its 65535 worker indices"));
  const auto other_tls = request(*server, 3, true);
  ASSERT_FALSE(other_tls.ok());
  EXPECT_THAT(other_tls.error().message, HasSubstr("TLS"));
  const auto stranger =
      request_worker_index({"127.0.0.1", server->address().port}, kUid,
                           key("another secret of a stranger"), false, 4, net::within(kSoon));
  ASSERT_FALSE(stranger.ok());
  EXPECT_EQ(stranger.error().code, ExitCode::kPeerLost);
}

}  // namespace
}  // namespace tilewright::rendezvous
