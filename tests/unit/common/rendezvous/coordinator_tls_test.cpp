// Members and coordinator over TLS, with somebody on the way who listens and alters.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>

#include "common/net/message.h"
#include "common/net/tls.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/server.h"
#include "tests/unit/common/net/relay.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kUid = "uid-of-a-job";
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

net::SecretKey key(const std::string& text = kSecret) {
  return net::SecretKey::from_bytes(text).value();
}
// Generous, as the other limits below: a busy machine under a sanitizer takes its time.
MonotonicTime soon() { return monotonic_now() + seconds(60); }

// No epoch of fewer, however far apart they join; some are sockets that send no heartbeats.
std::unique_ptr<Server> serve(bool tls, int world = 1) {
  Server::Options options;
  options.patience_with_strangers = seconds(60);
  auto server = Server::start(options, make_silent_logger()).or_throw();
  Settings settings;
  settings.min_world = settings.max_world = settings.expected = world;
  settings.heartbeat_timeout = std::chrono::minutes(10);
  settings.rejoin_wait = milliseconds(100);
  server->add_job({kUid, key(), settings, 0, tls}).or_throw();
  return server;
}

std::unique_ptr<Client> member(const net::Address& coordinator, bool tls, int index = 0,
                               const std::string& secret = kSecret) {
  Client::Options options;
  options.coordinator = coordinator;
  options.job_uid = kUid;
  options.seat = {index, 0};
  options.address = fmt::format("127.0.0.1:{}", 40000 + index);
  options.isa = "avx2";
  options.tls = tls;
  options.heartbeat_interval = milliseconds(20);
  return std::make_unique<Client>(options, key(secret), make_silent_logger());
}

template <typename Condition>
bool eventually(Server& server, Condition condition) {
  const MonotonicTime deadline = soon();
  while (!condition(server.snapshot(kUid).value())) {
    if (net::wait_ready(server.changes().fd(), POLLIN, deadline) != net::Ready::kYes) return false;
    server.take_changed();
  }
  return true;
}

TEST(CoordinatorTls, MembersMeetAndTalkUnreadBySomebodyOnTheWay) {
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
  // Long enough that bytes by chance are not them: two were, once in fifty runs.
  for (const char* plain :
       {kUid, kSecret, "tilewright", "\"type\":\"join\"", "avx2", "127.0.0.1", "training"}) {
    EXPECT_THAT(seen, Not(HasSubstr(plain)));
  }
}

TEST(CoordinatorTls, AJobWithoutItIsReadableOnTheWay) {  // what the test above would find
  const auto server = serve(false);
  net::Relay relay(server->address());
  const auto alone = member(relay.address(), false);
  ASSERT_TRUE(alone->join(-1, soon()).ok());
  EXPECT_THAT(relay.recorded(), HasSubstr(kUid));
  EXPECT_THAT(relay.recorded(), HasSubstr("avx2"));
  EXPECT_THAT(relay.recorded(), HasSubstr("\"type\":\"join\""));
}

TEST(CoordinatorTls, AMemberWithoutItIsRefusedWithASentence) {
  const auto server = serve(true);
  const auto plain = member(server->address(), false);
  const auto outcome = plain->join(-1, soon());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("the job's members talk under TLS and this process does not"));
  EXPECT_EQ(server->snapshot(kUid)->refused, 1u);
  EXPECT_TRUE(server->snapshot(kUid)->members.empty());
}

TEST(CoordinatorTls, AMemberWithItIsRefusedByAJobWithout) {
  const auto server = serve(false);
  const auto encrypted = member(server->address(), true);
  const auto outcome = encrypted->join(-1, soon());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("the job's members talk without TLS and this process under it"));
}

TEST(CoordinatorTls, AnotherSecretGetsNothing) {
  const auto server = serve(true);
  const auto stranger = member(server->address(), true, 0, "another secret of enough bytes");
  const auto outcome = stranger->join(-1, monotonic_now() + milliseconds(300));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("did not prove that it knows this job's secret"));
}

TEST(CoordinatorTls, OnePortServesJobsOfBothKinds) {
  const auto server = serve(true);
  Settings settings;
  server->add_job({"plain-job", key("the plain job's secret"), settings, 0, false}).or_throw();
  const auto encrypted = member(server->address(), true);
  EXPECT_TRUE(encrypted->join(-1, soon()).ok());
  Client::Options options;
  options.coordinator = server->address();
  options.job_uid = "plain-job";
  options.address = "127.0.0.1:1";
  options.isa = "ref";
  Client plain(options, key("the plain job's secret"), make_silent_logger());
  EXPECT_TRUE(plain.join(-1, soon()).ok());
}

TEST(CoordinatorTls, ADeathIsNoticedAtOnceAndNamed) {
  const auto server = serve(true, 2);
  const auto zero = member(server->address(), true, 0);
  auto one = member(server->address(), true, 1);
  auto joined = std::async(std::launch::async, [&] { return one->join(-1, soon()); });
  ASSERT_TRUE(zero->join(-1, soon()).ok());
  ASSERT_TRUE(joined.get().ok());
  one.reset();
  ASSERT_EQ(net::wait_ready(zero->epoch_bell().fd(), POLLIN, soon()), net::Ready::kYes);
  EXPECT_THAT(zero->reason(), HasSubstr("worker 1 was lost (connection closed)"));
}

// Nobody can make the coordinator believe a word that no member has said; the member comes back.
TEST(CoordinatorTls, AnAlteredByteEndsTheConnectionOnly) {
  const auto server = serve(true);
  net::Relay relay(server->address());
  const auto alone = member(relay.address(), true);
  ASSERT_TRUE(alone->join(-1, soon()).ok());
  relay.alter_next_byte();
  ASSERT_EQ(net::wait_ready(alone->epoch_bell().fd(), POLLIN, soon()), net::Ready::kYes);
  const auto again = alone->join(-1, soon());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->epoch, 2u);
  ASSERT_FALSE(server->snapshot(kUid)->losses.empty());
  EXPECT_THAT(server->snapshot(kUid)->losses[0].lost.reason, HasSubstr("may have altered it"));
}

// An assignment of many records, of which poll(2) announces the first only.
TEST(CoordinatorTls, ALongAssignmentArrivesWhole) {
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
    join.isa = "avx2";
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
