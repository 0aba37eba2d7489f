// Members and coordinator over TLS, with a relay in between that records and alters traffic.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>

#include "common/net/connect.h"
#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/net/tls.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/server.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/common/net/relay.h"
#include "tests/unit/common/rendezvous/coordinator_fixtures.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using tilewright::testing::make_silent_logger;

// A generous deadline, like the other limits below, for a busy machine under a sanitizer.
MonotonicTime soon() { return monotonic_now() + seconds(60); }

// Epochs need `world` members. Some members are sockets that send no heartbeats.
std::unique_ptr<Server> serve(bool tls, int world = 1, Duration reconnect_timeout = seconds(60)) {
  Server::Options options;
  options.proof_timeout = options.join_timeout = seconds(60);
  auto server = Server::start(options, make_silent_logger()).or_throw();
  Settings settings;
  settings.min_world = settings.max_world = settings.expected = world;
  settings.heartbeat_timeout = std::chrono::minutes(10);
  settings.rejoin_timeout = milliseconds(100);
  settings.reconnect_timeout = reconnect_timeout;
  server->add_job({kUid, key(), settings, 0, tls}).or_throw();
  return server;
}

std::unique_ptr<Client> member(const net::Address& coordinator, bool tls, int index = 0,
                               const std::string& secret = kSecret) {
  Client::Options options;
  options.coordinator = coordinator;
  options.job_uid = kUid;
  options.process = {index, 0};
  options.address = fmt::format("127.0.0.1:{}", 40000 + index);
  options.isas = {"avx2"};
  options.tls = tls;
  options.heartbeat_interval = milliseconds(20);
  return std::make_unique<Client>(options, key(secret), make_silent_logger());
}

TEST(CoordinatorTls, TrafficIsNotReadableOnTheWire) {
  const auto server = serve(true, 2);
  net::Relay relay(server->address());
  const auto zero = member(relay.address(), true, 0);
  const auto one = member(server->address(), true, 1);
  auto joined = std::async(std::launch::async, [&] { return one->join(-1, soon()); });
  const auto assignment = zero->join(-1, soon());
  ASSERT_TRUE(assignment.ok()) << assignment.error().message;
  ASSERT_TRUE(joined.get().ok());
  EXPECT_EQ(assignment->world, 2);
  Progress progress;
  progress.step = 17;
  progress.total_steps = 100;
  progress.phase = "training";
  zero->report(progress);
  EXPECT_TRUE(eventually(*server, [](const Snapshot& snapshot) {
    return snapshot.members.size() == 2 && snapshot.members[0].progress.step == 17;
  }));
  const std::string seen = relay.recorded();
  EXPECT_TRUE(net::is_tls_hello(seen));
  // Long strings only, because random traffic contained a two-byte string in one of fifty runs.
  for (const char* plain :
       {kUid, kSecret, "tilewright", "\"type\":\"join\"", "avx2", "127.0.0.1", "training"}) {
    EXPECT_THAT(seen, Not(HasSubstr(plain)));
  }
}

TEST(CoordinatorTls, PlaintextTrafficIsReadableOnTheWire) {  // proves that the test above can fail
  const auto server = serve(false);
  net::Relay relay(server->address());
  const auto alone = member(relay.address(), false);
  ASSERT_TRUE(alone->join(-1, soon()).ok());
  EXPECT_THAT(relay.recorded(), HasSubstr(kUid));
  EXPECT_THAT(relay.recorded(), HasSubstr("avx2"));
  EXPECT_THAT(relay.recorded(), HasSubstr("\"type\":\"join\""));
}

TEST(CoordinatorTls, RejectsAMemberWithoutTls) {
  const auto server = serve(true);
  const auto plain = member(server->address(), false);
  const auto outcome = plain->join(-1, soon());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("the job's members use TLS and this process does not"));
  EXPECT_TRUE(server->snapshot(kUid)->members.empty());
}

TEST(CoordinatorTls, RejectsATlsMemberInAPlaintextJob) {
  const auto server = serve(false);
  const auto encrypted = member(server->address(), true);
  const auto outcome = encrypted->join(-1, soon());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("the job's members do not use TLS and this process does"));
}

TEST(CoordinatorTls, RejectsAWrongSecret) {
  const auto server = serve(true);
  const auto impostor = member(server->address(), true, 0, "another secret of enough bytes");
  const MonotonicTime limit = soon();
  std::string message;
  while (message.find("secret") == std::string::npos && monotonic_now() < limit) {
    const auto outcome = impostor->join(-1, monotonic_now() + milliseconds(10));
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, ExitCode::kPeerLost);
    message = outcome.error().message;
  }
  EXPECT_THAT(message, HasSubstr("did not prove that it knows this job's secret"));
}

TEST(CoordinatorTls, OnePortServesTlsAndPlaintextJobs) {
  const auto server = serve(true);
  Settings settings;
  server->add_job({"plain-job", key("the plain job's secret"), settings, 0, false}).or_throw();
  const auto encrypted = member(server->address(), true);
  EXPECT_TRUE(encrypted->join(-1, soon()).ok());
  Client::Options options;
  options.coordinator = server->address();
  options.job_uid = "plain-job";
  options.address = "127.0.0.1:1";
  options.isas = {"ref"};
  Client plain(options, key("the plain job's secret"), make_silent_logger());
  EXPECT_TRUE(plain.join(-1, soon()).ok());
}

TEST(CoordinatorTls, ReportsALostMember) {
  const auto server = serve(true, 2, milliseconds(1));
  const auto zero = member(server->address(), true, 0);
  auto one = member(server->address(), true, 1);
  auto joined = std::async(std::launch::async, [&] { return one->join(-1, soon()); });
  ASSERT_TRUE(zero->join(-1, soon()).ok());
  ASSERT_TRUE(joined.get().ok());
  one.reset();
  ASSERT_EQ(net::wait_ready(zero->epoch_cancel_token().fd(), POLLIN, soon()), net::Ready::kYes);
  EXPECT_THAT(zero->reason(), HasSubstr("worker 1 was lost (connection closed)"));
}

// An altered byte ends the connection; the member reconnects in the same epoch.
TEST(CoordinatorTls, TamperingClosesOnlyThatConnection) {
  const auto server = serve(true);
  net::Relay relay(server->address());
  const auto alone = member(relay.address(), true);
  ASSERT_TRUE(alone->join(-1, soon()).ok());
  relay.alter_next_byte();
  EXPECT_TRUE(eventually(*server, [](const Snapshot& snapshot) {
    return snapshot.disconnections == 1 && snapshot.members[0].connected;
  }));
  EXPECT_FALSE(alone->epoch_ended());
  EXPECT_EQ(server->snapshot(kUid)->epoch, 1u);
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 0u);
}

TEST(CoordinatorTls, TheReasonOfALossNamesTampering) {
  const auto server = serve(true, 1, Duration::zero());
  net::Relay relay(server->address());
  const auto alone = member(relay.address(), true);
  ASSERT_TRUE(alone->join(-1, soon()).ok());
  relay.alter_next_byte();
  EXPECT_TRUE(
      eventually(*server, [](const Snapshot& snapshot) { return snapshot.loss_count == 1; }));
  EXPECT_THAT(server->snapshot(kUid)->losses[0].lost.reason, HasSubstr("altered in transit"));
}

// An assignment of many TLS records, of which poll(2) reports only the first.
TEST(CoordinatorTls, ALongAssignmentArrivesComplete) {
  constexpr int kWorld = 120;
  const auto server = serve(true, kWorld);
  std::vector<net::Socket> others;
  for (int index = 1; index < kWorld; ++index) {
    const net::Wait wait = soon();
    net::Socket socket = net::connect_to(server->address(), wait).or_throw();
    socket.connect_tls(net::TlsKey(key(), proof_context(kUid)));
    net::write_message(socket, encode_hello(kUid), wait).or_throw();
    net::authenticate(socket, net::Role::kClient, key(), proof_context(kUid), wait).or_throw();
    Join join;
    join.who = {{index, 0}, 7};
    join.address = std::string(240, 'a') + ".example:1";
    join.isas = {"avx2"};
    net::write_message(socket, encode(ClientMessage(join)), wait).or_throw();
    others.push_back(std::move(socket));
  }
  const auto zero = member(server->address(), true);
  const auto assignment = zero->join(-1, soon());
  ASSERT_TRUE(assignment.ok()) << assignment.error().message << "; "
                               << server->snapshot(kUid)->members.size() << " members, "
                               << server->snapshot(kUid)->losses.size() << " lost";
  EXPECT_EQ(assignment->peers.size(), std::size_t{kWorld});
}

}  // namespace
}  // namespace tilewright::rendezvous
