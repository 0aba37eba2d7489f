// Server and clients over loopback: what members observe when processes join, die and send
// malformed input. The server's clock advances only when a test advances it, so that a slow machine
// cannot expire a deadline.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <future>
#include <thread>

#include "common/net/connect.h"
#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/server.h"
#include "tests/support/manual_clock.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/common/net/net_fixtures.h"
#include "tests/unit/common/net/relay.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;
using tilewright::testing::ManualClock;

constexpr const char* kUid = "job-1";
constexpr Duration kQuietPeriod = seconds(3);
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

net::SecretKey key(const std::string& text = kSecret) {
  return net::SecretKey::from_bytes(text).value();
}
MonotonicTime in(Duration duration) { return monotonic_now() + duration; }

Settings settings(int min, int max, int expected) {
  Settings result;
  result.min_world = min;
  result.max_world = max;
  result.expected = expected;
  result.join_quiet_period = kQuietPeriod;
  return result;
}

std::unique_ptr<Server> serve(const Settings& job, ManualClock& clock, std::uint16_t port = 0,
                              Epoch last_epoch = 0) {
  Server::Options options{.listen = {"127.0.0.1", port}, .clock = &clock};
  auto server = Server::start(options, make_silent_logger()).or_throw();
  server->add_job({kUid, key(), job, last_epoch}).or_throw();
  return server;
}

Client::Options options(const Server& server, int index) {
  Client::Options result;
  result.coordinator = {"127.0.0.1", server.address().port};
  result.job_uid = kUid;
  result.process = {index, 0};
  result.address = fmt::format("127.0.0.1:{}", 40000 + index);
  result.isas = {"avx2"};
  result.heartbeat_interval = milliseconds(20);
  return result;
}

std::unique_ptr<Client> client(const Client::Options& options,
                               const std::string& secret = kSecret) {
  return std::make_unique<Client>(options, key(secret), make_silent_logger());
}

std::future<Result<Assignment>> join_later(Client& member, std::int64_t checkpoint = -1,
                                           Duration within = seconds(20)) {
  return std::async(std::launch::async,
                    [&member, checkpoint, within] { return member.join(checkpoint, in(within)); });
}

bool wait_for_epoch_end(Client& member, Duration within) {
  return net::wait_ready(member.epoch_cancel_token().fd(), POLLIN, net::within(within)) ==
         net::Ready::kYes;
}

// Waits for changes until the condition holds.
template <typename Condition>
bool eventually(Server& server, Condition condition, Duration within = seconds(20)) {
  const MonotonicTime deadline = in(within);
  while (!condition(server.snapshot(kUid).value())) {
    if (net::wait_ready(server.changes().fd(), POLLIN, deadline) != net::Ready::kYes) return false;
    server.take_changed();
  }
  return true;
}

int count_waiting(const Snapshot& snapshot) {
  return static_cast<int>(std::ranges::count(snapshot.members, MemberState::kWaiting,
                                             [](const MemberView& one) { return one.state; }));
}

// Ends the quiet period as soon as `count` members wait for an epoch.
void form_with(Server& server, ManualClock& clock, int count) {
  ASSERT_TRUE(eventually(server, [&](const Snapshot& s) { return count_waiting(s) == count; }));
  clock.advance(kQuietPeriod);
}

bool has_disconnected(const Snapshot& snapshot) {
  return !std::ranges::all_of(snapshot.members, &MemberView::connected);
}

// A server and `count` clients in one epoch.
struct Running {
  explicit Running(const Settings& job, int count) : server(serve(job, clock)) {
    std::vector<std::future<Result<Assignment>>> joins;
    for (int i = 0; i < count; ++i) {
      members.push_back(client(options(*server, i)));
      joins.push_back(join_later(*members.back()));
    }
    for (auto& join : joins) assignments.push_back(join.get().or_throw());
  }
  // Closes the member's connection until it is lost.
  void lose(std::size_t index) {
    members[index].reset();
    ASSERT_TRUE(eventually(*server, has_disconnected));
    clock.advance(Settings().reconnect_timeout);
  }
  ManualClock clock;
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Client>> members;
  std::vector<Assignment> assignments;
};

bool wait_until_closed(net::Socket& socket) {
  std::array<std::byte, 64> ignored;
  while (net::wait_ready(socket.fd(), POLLIN, net::within(seconds(20))) == net::Ready::kYes) {
    if (!socket.try_read(ignored).ok()) return true;
  }
  return false;
}

// A peer that authenticates and then sends the bytes of the test.
class RawMember {
 public:
  RawMember(const Server& server, const std::string& secret = kSecret,
            const std::string& uid = kUid, int version = kProtocolVersion) {
    socket_ =
        net::connect_to({"127.0.0.1", server.address().port}, net::within(seconds(5))).or_throw();
    net::write_message(socket_, encode_hello(uid, version), net::within(seconds(5))).or_throw();
    authenticated_ = net::authenticate(socket_, net::Role::kClient, key(secret), proof_context(uid),
                                       net::within(seconds(5)));
  }
  void send(const std::string& message) {
    net::write_message(socket_, message, net::within(seconds(5))).or_throw();
  }
  void send_bytes(const std::string& bytes) {
    socket_.write_all(std::as_bytes(std::span(bytes)), net::within(seconds(20))).or_throw();
  }
  std::string receive() {
    return net::read_message(socket_, kMaxMessageBytes, net::within(seconds(20))).or_throw();
  }
  bool has_input() const {
    return net::wait_ready(socket_.fd(), POLLIN, monotonic_now()) == net::Ready::kYes;
  }
  int fd() const { return socket_.fd(); }
  bool is_closed_within(Duration duration) {
    std::array<std::byte, 4096> ignored;
    while (net::wait_ready(socket_.fd(), POLLIN, net::within(duration)) == net::Ready::kYes) {
      if (!socket_.try_read(ignored).ok()) return true;
    }
    return false;
  }
  const Status& authenticated() const { return authenticated_; }

 private:
  net::Socket socket_;
  Status authenticated_;
};

TEST(Coordinator, AssignsRanksAndPeers) {
  Running job(settings(1, 2, 2), 2);
  EXPECT_EQ(job.assignments[0].epoch, 1u);
  EXPECT_EQ(job.assignments[0].world, 2);
  EXPECT_EQ(job.assignments[0].rank, 0);
  EXPECT_EQ(job.assignments[1].rank, 1);
  EXPECT_EQ(job.assignments[0].peers, job.assignments[1].peers);
  EXPECT_EQ(job.assignments[0].peers[1].address, "127.0.0.1:40001");
  EXPECT_FALSE(job.members[0]->epoch_ended());
}

// finish() sends the last progress; the next heartbeat is an hour away.
TEST(Coordinator, KeepsRankZeroProgressAfterTheJobEnds) {
  ManualClock clock;
  const auto server = serve(settings(1, 1, 1), clock);
  Client::Options slow = options(*server, 0);
  slow.heartbeat_interval = std::chrono::hours(1);
  auto only = client(slow);
  only->join(-1, in(seconds(20))).or_throw();
  Progress progress;
  progress.step = progress.total_steps = 100;
  progress.metrics = {{"eval_accuracy", 0.75}};
  only->report(progress);
  ASSERT_TRUE(only->finish(in(seconds(20))).ok());
  only.reset();
  EXPECT_TRUE(eventually(*server, [](const Snapshot& snapshot) {
    return snapshot.phase == Phase::kClosed && snapshot.members.empty();
  }));
  EXPECT_EQ(server->snapshot(kUid)->progress, progress);
}

TEST(Coordinator, PublishesMemberProgress) {
  Running job(settings(1, 2, 2), 2);
  Progress progress;
  progress.step = 17;
  progress.total_steps = 100;
  progress.loss = 0.25;
  progress.phase = "training";
  progress.metrics = {{"accuracy", 0.5}};
  job.members[1]->report(progress);
  EXPECT_TRUE(eventually(*job.server, [&](const Snapshot& snapshot) {
    return snapshot.members.size() == 2 && snapshot.members[1].progress == progress;
  }));
  EXPECT_EQ(job.server->snapshot(kUid)->members[1].rank, 1);
}

TEST(Coordinator, ALostMemberEndsTheEpochAndTheNextOneForms) {
  Running job(settings(1, 3, 3), 3);
  job.lose(2);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[1], seconds(5)));
  EXPECT_THAT(job.members[0]->reason(), HasSubstr("worker 2"));
  auto first = join_later(*job.members[0], 5);
  auto second = join_later(*job.members[1], 9);
  const Assignment next = first.get().or_throw();
  EXPECT_EQ(next.epoch, 2u);
  EXPECT_EQ(next.world, 2);
  EXPECT_EQ(next.resume_step, 9);
  EXPECT_EQ(second.get().or_throw().rank, 1);
  const Snapshot snapshot = *job.server->snapshot(kUid);
  ASSERT_EQ(snapshot.losses.size(), 1u);
  EXPECT_EQ(snapshot.losses[0].lost.who.process, (WorkerProcess{2, 0}));
}

TEST(Coordinator, ABrokenConnectionDoesNotEndTheEpoch) {
  ManualClock clock;
  const auto server = serve(settings(2, 2, 2), clock);
  net::Relay relay(server->address());
  Client::Options relayed = options(*server, 1);
  relayed.coordinator = relay.address();
  const auto zero = client(options(*server, 0));
  const auto one = client(relayed);
  auto joined = join_later(*zero);
  ASSERT_EQ(one->join(-1, in(seconds(20))).or_throw().epoch, 1u);
  ASSERT_EQ(joined.get().or_throw().epoch, 1u);
  for (std::uint64_t broken = 1; broken <= 3; ++broken) {
    relay.reset_connections();
    EXPECT_TRUE(eventually(*server, [&](const Snapshot& snapshot) {
      return snapshot.disconnections == broken && !has_disconnected(snapshot);
    }));
  }
  EXPECT_EQ(server->snapshot(kUid)->epoch, 1u);
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 0u);
  EXPECT_FALSE(zero->epoch_ended());
  EXPECT_FALSE(one->epoch_ended());
}

// The clock stands still, so only the report can end the epoch.
TEST(Coordinator, TheExitOfAWorkerEndsTheEpochAtOnce) {
  Running job(settings(1, 2, 2), 2);
  job.members[1].reset();
  job.server->worker_exited(kUid, 1);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(20)));
  EXPECT_THAT(job.members[0]->reason(), HasSubstr("worker 1 was lost (connection closed)"));
}

TEST(Coordinator, LeaveReportsItsReason) {
  Running job(settings(1, 2, 2), 2);
  job.members[1]->leave("stopped by SIGTERM", in(seconds(5)));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
  EXPECT_THAT(job.members[0]->reason(), HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(job.server->snapshot(kUid)->losses[0].lost.kind, LossKind::kLeft);
}

TEST(Coordinator, CallsTheEpochEndHandlerOnce) {
  Running job(settings(1, 2, 2), 2);
  std::promise<std::string> reported;
  job.members[0]->on_epoch_end([&](const std::string& reason) { reported.set_value(reason); });
  job.lose(1);
  auto reason = reported.get_future();
  ASSERT_EQ(reason.wait_for(seconds(5)), std::future_status::ready);
  EXPECT_THAT(reason.get(), HasSubstr("worker 1"));
  bool at_once = false;
  job.members[0]->on_epoch_end([&](const std::string&) { at_once = true; });
  EXPECT_TRUE(at_once);
  auto joined = join_later(*job.members[0]);
  joined.get().or_throw();
  job.members[0]->on_epoch_end([&](const std::string&) { ADD_FAILURE() << "removed handler"; });
  job.members[0]->on_epoch_end({});
  job.server->remove_job(kUid, "deleted");
  EXPECT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
}

TEST(Coordinator, AMemberWithoutHeartbeatsIsLost) {
  Settings job = settings(1, 2, 2);
  job.heartbeat_timeout = seconds(10);
  ManualClock clock;
  auto server = serve(job, clock);
  auto living = client(options(*server, 0));
  auto joined = join_later(*living);
  RawMember silent(*server);
  silent.send(encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", {"avx2"}, -1, 0, {}})));
  ASSERT_EQ(joined.get().or_throw().world, 2);
  clock.advance(seconds(6));
  ASSERT_TRUE(eventually(*server, [&](const Snapshot& snapshot) {
    return snapshot.members[0].last_seen == clock.now();
  })) << "the other member keeps sending heartbeats";
  EXPECT_FALSE(living->epoch_ended());
  clock.advance(seconds(4));
  ASSERT_TRUE(wait_for_epoch_end(*living, seconds(20)));
  EXPECT_THAT(living->reason(), HasSubstr("worker 1 was lost (heartbeats missed)"));
  EXPECT_TRUE(silent.is_closed_within(seconds(5)));
}

TEST(Coordinator, AStallOfTheCoordinatorIsNotAMissedHeartbeat) {
  ManualClock clock;
  const auto server = serve(settings(2, 2, 2), clock);
  RawMember members[] = {RawMember(*server), RawMember(*server)};
  for (int i = 0; i < 2; ++i)
    members[i].send(encode(ClientMessage(Join{{{i, 0}, 5}, "x:1", {"avx2"}, -1, 0, {}})));
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.epoch == 1; }));
  const MonotonicTime last_seen = server->snapshot(kUid)->members[0].last_seen;
  clock.advance(std::chrono::minutes(1));  // the server's thread wakes 50 s too late
  ASSERT_TRUE(eventually(*server, [&](const Snapshot& snapshot) {
    return snapshot.loss_count > 0 || snapshot.members[0].last_seen != last_seen;
  }));
  EXPECT_EQ(server->snapshot(kUid)->epoch, 1u);
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 0u);
  clock.advance(Settings().heartbeat_timeout);
  EXPECT_TRUE(eventually(*server, [](const Snapshot& s) { return s.loss_count == 2; }));
}

TEST(Coordinator, ANewMemberJoinsAtAStepBoundary) {
  Running job(settings(1, 3, 2), 2);
  auto new_member = client(options(*job.server, 2));
  auto joined = join_later(*new_member);
  ASSERT_TRUE(
      eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kDraining; }));
  auto reform_requested = [&](Client& member) {
    const MonotonicTime deadline = in(seconds(5));
    while (!member.reform_requested() && monotonic_now() < deadline) std::this_thread::yield();
    return member.reform_requested();
  };
  EXPECT_TRUE(reform_requested(*job.members[0]));
  EXPECT_TRUE(reform_requested(*job.members[1]));
  EXPECT_FALSE(job.members[0]->epoch_ended()) << "the running step continues";
  auto first = join_later(*job.members[0]);
  auto second = join_later(*job.members[1]);
  EXPECT_EQ(first.get().or_throw().world, 3);
  EXPECT_EQ(second.get().or_throw().rank, 1);
  EXPECT_EQ(joined.get().or_throw().rank, 2);
  EXPECT_EQ(job.server->snapshot(kUid)->loss_count, 0u);
}

TEST(Coordinator, WaitsForAWorkerThatIsBeingRestarted) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 2), clock);
  server->expect(kUid, {1, 2, 2, seconds(20)}).or_throw();
  auto first = client(options(*server, 0));
  auto joined = join_later(*first);
  form_with(*server, clock, 1);
  // A heartbeat at the new time shows that the server has handled its deadlines.
  ASSERT_TRUE(eventually(*server, [&](const Snapshot& snapshot) {
    return snapshot.members[0].last_seen == clock.now();
  }));
  EXPECT_EQ(server->snapshot(kUid)->phase, Phase::kGathering) << "20 s have not passed";
  auto second = client(options(*server, 1));
  EXPECT_EQ(join_later(*second).get().or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().world, 2);
}

TEST(Coordinator, ACoordinatorRestartDoesNotEndTheEpoch) {
  Running job(settings(1, 2, 2), 2);
  const std::uint16_t port = job.server->address().port;
  for (const Epoch last_epoch : {Epoch{0}, Epoch{1}}) {
    job.server.reset();
    while (job.members[0]->connected()) std::this_thread::yield();
    EXPECT_FALSE(job.members[0]->epoch_ended());
    job.server = serve(settings(1, 2, 2), job.clock, port, last_epoch);
    ASSERT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
      return snapshot.phase == Phase::kRunning && snapshot.members.size() == 2;
    }));
    const Snapshot snapshot = *job.server->snapshot(kUid);
    EXPECT_EQ(snapshot.epoch, 1u);
    EXPECT_EQ(snapshot.members[1].rank, 1);
  }
  EXPECT_FALSE(job.members[0]->epoch_ended());
  // The new coordinator handles a loss.
  job.lose(1);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
  EXPECT_EQ(join_later(*job.members[0]).get().or_throw().epoch, 2u);
}

TEST(Coordinator, AWaitingMemberSurvivesACoordinatorRestart) {
  ManualClock clock;
  auto server = serve(settings(2, 2, 2), clock);
  auto first = client(options(*server, 0));
  auto joined = join_later(*first);
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.members.size() == 1; }));
  const std::uint16_t port = server->address().port;
  server.reset();
  server = serve(settings(2, 2, 2), clock, port);
  auto second = client(options(*server, 1));
  EXPECT_EQ(join_later(*second).get().or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().rank, 0);
}

TEST(Coordinator, TheClientReconnectsWhenTheCoordinatorHangs) {
  auto listener = net::Listener::bind({"127.0.0.1", 0}).or_throw();
  Client::Options hung;
  hung.coordinator = {"127.0.0.1", listener.local_address().port};
  hung.job_uid = kUid;
  hung.isas = {"avx2"};
  ManualClock clock;
  hung.clock = &clock;
  auto member = client(hung);
  net::WakeUp cancel;
  auto joined = std::async(std::launch::async,
                           [&] { return member->join(-1, net::within(seconds(20), &cancel)); });
  std::vector<net::Socket> accepted;
  for (int i = 0; i < 2; ++i) {
    // The client may start its timeout after an advance, so advance until it reconnects.
    while (i > 0 && net::wait_ready(listener.fd(), POLLIN, net::within(milliseconds(1))) !=
                        net::Ready::kYes) {
      clock.advance(hung.coordinator_timeout);
    }
    net::Socket socket = net::accept_from(listener);
    ASSERT_EQ(
        decode_hello(net::read_message(socket, kMaxHelloBytes, net::within(seconds(5))).or_throw())
            .value()
            .job_uid,
        kUid);
    net::authenticate(socket, net::Role::kServer, key(), proof_context(kUid),
                      net::within(seconds(5)))
        .or_throw();
    accepted.push_back(std::move(socket));
  }
  cancel.signal();
  EXPECT_FALSE(joined.get().ok());
}

TEST(Coordinator, RejectsAWrongSecret) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 1), clock);
  auto impostor = client(options(*server, 1), "another secret of enough bytes");
  const MonotonicTime limit = in(seconds(20));
  std::string message;
  while (message.find("secret") == std::string::npos && monotonic_now() < limit) {
    const auto joined = impostor->join(-1, in(milliseconds(10)));
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, ExitCode::kPeerLost);
    message = joined.error().message;
  }
  EXPECT_THAT(message, HasSubstr("secret"));
  EXPECT_TRUE(server->snapshot(kUid)->members.empty());
  auto friendly = client(options(*server, 0));
  EXPECT_TRUE(friendly->join(-1, in(seconds(5))).ok());
}

TEST(Coordinator, RejectsTheSecretOfAnotherJob) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  EXPECT_TRUE(RawMember(*server, "the other job's own secret", "job-2").authenticated().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-2").authenticated().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-3").authenticated().ok());
  auto member = client(options(*server, 0));
  EXPECT_TRUE(member->join(-1, in(seconds(5))).ok());
  EXPECT_EQ(server->snapshot("job-2")->members.size(), 0u);
  EXPECT_FALSE(server->snapshot("job-3"));
}

TEST(Coordinator, ARestartedProcessReplacesTheOldOneWhichIsFenced) {
  Running job(settings(1, 2, 2), 2);
  auto successor = client(options(*job.server, 1));
  auto joined = join_later(*successor);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[1], seconds(5)));
  const auto old = job.members[1]->join(-1, in(seconds(5)));
  EXPECT_EQ(old.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(old.error().message, HasSubstr("newer process"));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
  EXPECT_EQ(job.members[0]->join(-1, in(seconds(5))).or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().rank, 1);
}

TEST(Coordinator, LeavesAMemberWithoutTheInstructionSetWaiting) {
  Running job(settings(1, 2, 1), 1);
  auto other = options(*job.server, 1);
  other.isas = {"amx"};
  const auto waiting = client(other);
  auto joined = join_later(*waiting);
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
    return snapshot.isa == "avx2" && snapshot.members.size() == 2 && snapshot.members[1].lacks_isa;
  }));
  EXPECT_FALSE(job.members[0]->epoch_ended());
  job.server->remove_job(kUid, "the job is no longer running");
  EXPECT_EQ(joined.get().error().code, ExitCode::kUnsupported);
}

TEST(Coordinator, ClosesAfterAllMembersFinish) {
  Running job(settings(1, 2, 2), 2);
  EXPECT_TRUE(job.members[1]->finish(in(seconds(5))).ok());
  job.members[1].reset();
  EXPECT_TRUE(job.members[0]->finish(in(seconds(5))).ok());
  job.members[0].reset();
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
    return snapshot.phase == Phase::kClosed && snapshot.members.empty();
  }));
  EXPECT_EQ(job.server->snapshot(kUid)->loss_count, 0u);
  auto late = client(options(*job.server, 0));
  const auto joined = late->join(-1, in(seconds(5)));
  EXPECT_EQ(joined.error().code, ExitCode::kOk) << "nothing is left to do";
}

TEST(Coordinator, FinishWaitsForTheCoordinatorToReturn) {
  Running job(settings(1, 1, 1), 1);
  const std::uint16_t port = job.server->address().port;
  job.server.reset();
  auto finished =
      std::async(std::launch::async, [&] { return job.members[0]->finish(in(seconds(10))).ok(); });
  job.server = serve(settings(1, 1, 1), job.clock, port, 1);
  EXPECT_TRUE(finished.get());
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kClosed; }));
}

TEST(Coordinator, MalformedInputDoesNotAffectMembers) {
  Running job(settings(1, 2, 1), 1);
  const net::Address address{"127.0.0.1", job.server->address().port};
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\0'),
        std::string("\xff\xff\xff\xff"), std::string("\x05\x00\x00\x00hello", 9)}) {
    net::Socket socket = net::connect_to(address, net::within(seconds(5))).or_throw();
    [[maybe_unused]] const Status sent =
        socket.write_all(std::as_bytes(std::span(garbage)), net::within(seconds(5)));
    std::array<std::byte, 64> ignored;
    while (net::wait_ready(socket.fd(), POLLIN, net::within(seconds(5))) == net::Ready::kYes &&
           socket.try_read(ignored).ok()) {
    }
    EXPECT_TRUE(socket.peer_closed()) << garbage.substr(0, 10);
  }
  const std::string join = encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", {"avx2"}, -1, 0, {}}));
  for (const std::string& message :
       {std::string("{"), std::string("[]"), std::string(R"({"type":"x"})"),
        encode(ClientMessage(Heartbeat{{}, 1, {}}))}) {
    RawMember sender(*job.server);
    ASSERT_TRUE(sender.authenticated().ok());
    sender.send(message);
    EXPECT_TRUE(sender.is_closed_within(seconds(5))) << message;
  }
  EXPECT_FALSE(job.members[0]->epoch_ended());
  EXPECT_TRUE(job.members[0]->connected());
}

// Without the bound, the next epoch would be above the highest that members may report.
TEST(Coordinator, AFaultyMemberCannotExhaustTheEpochNumbers) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 1), clock);
  RawMember faulty(*server);
  faulty.send(encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", {"avx2"}, -1, Epoch{1} << 47, {}})));
  EXPECT_THAT(faulty.receive(), HasSubstr("worker 1 reports epoch 140737488355328"));
  EXPECT_TRUE(faulty.is_closed_within(seconds(20)));
  auto member = client(options(*server, 0));
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_EQ(member->join(-1, in(seconds(20))).or_throw().epoch, epoch);
  }
}

TEST(Coordinator, TellsAProcessOfAnotherProtocolVersionBothVersions) {
  Running job(settings(1, 2, 1), 1);
  RawMember newer(*job.server, kSecret, kUid, kProtocolVersion + 1);
  ASSERT_TRUE(newer.authenticated().ok()) << newer.authenticated().error().message;
  newer.send("a message that this version cannot decode");
  const auto answer = decode_server_message(newer.receive()).or_throw();
  ASSERT_TRUE(std::holds_alternative<Refuse>(answer));
  EXPECT_EQ(std::get<Refuse>(answer).message,
            fmt::format("this process uses version {} of the rendezvous protocol, the coordinator "
                        "version {}; expected the same release of Tilewright for both",
                        kProtocolVersion + 1, kProtocolVersion));
  EXPECT_TRUE(newer.is_closed_within(seconds(5)));
  EXPECT_EQ(job.server->snapshot(kUid)->refused, 1U);
  EXPECT_FALSE(job.members[0]->epoch_ended());
}

TEST(Coordinator, ASilentConnectionTimesOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  net::Socket socket =
      net::connect_to({"127.0.0.1", server->address().port}, net::within(seconds(5))).or_throw();
  // The server may accept after an advance, so advance until it closes the connection.
  const MonotonicTime limit = in(seconds(20));
  while (!socket.peer_closed() && monotonic_now() < limit) {
    clock.advance(Server::Options().proof_timeout);
    net::wait_ready(socket.fd(), POLLIN, net::within(milliseconds(1)));
  }
  EXPECT_TRUE(socket.peer_closed());
  EXPECT_EQ(server->rejections().at("no_proof"), 1u);
}

TEST(Coordinator, AConnectionThatDoesNotJoinTimesOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  RawMember member(*server);
  ASSERT_TRUE(member.authenticated().ok());
  clock.advance(Server::Options().join_timeout);
  EXPECT_TRUE(member.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("no_proof"), 0u);
}

// The clock stands still, so no timeout frees a slot.
TEST(Coordinator, IdleConnectionsDoNotShutMembersOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  const Limits limits;
  std::vector<net::Socket> idle;
  for (std::size_t i = 0; i < limits.unauthenticated + 1; ++i)
    idle.push_back(net::connect_to({"127.0.0.1", server->address().port}, net::within(seconds(20)))
                       .or_throw());
  auto member = client(options(*server, 0));
  EXPECT_TRUE(member->join(-1, in(seconds(20))).ok());
  EXPECT_TRUE(wait_until_closed(idle.front())) << "the oldest";
  EXPECT_FALSE(idle.back().peer_closed()) << "the newest";
  EXPECT_LE(server->usage().connections, limits.unauthenticated_per_source + 1);
  EXPECT_GE(server->rejections().at("source"),
            limits.unauthenticated - limits.unauthenticated_per_source);
}

TEST(Coordinator, AJobHasAShareOfTheConnections) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 1), clock);
  const std::size_t share = job_limits({}, 2).connections;
  std::vector<std::unique_ptr<RawMember>> members;
  for (std::size_t i = 0; i < share; ++i) {
    members.push_back(std::make_unique<RawMember>(*server));
    ASSERT_TRUE(members.back()->authenticated().ok());
  }
  RawMember refused(*server);
  EXPECT_THAT(refused.receive(), HasSubstr("the job has 20 connections, the maximum"));
  EXPECT_TRUE(refused.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("job_connections"), 1u);
  auto late = client(options(*server, 0));
  const MonotonicTime limit = in(seconds(20));
  std::string message;
  while (message.find("the job has 20 connections") == std::string::npos &&
         monotonic_now() < limit) {
    message = late->join(-1, in(milliseconds(10))).error().message;
  }
  EXPECT_THAT(message, HasSubstr("the job has 20 connections"));
  members.clear();
  EXPECT_TRUE(late->join(-1, in(seconds(20))).ok()) << "it connects again";
}

// Sends all but the last byte of the largest message.
void send_unfinished(RawMember& member) {
  member.send_bytes(net::message_prefix(kMaxMessageBytes) + std::string(kMaxMessageBytes - 1, ' '));
}

TEST(Coordinator, UnfinishedMessagesOfAJobUseABoundedAmountOfMemory) {
  ManualClock clock;
  auto server = serve(settings(1, 8, 1), clock);
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  const JobLimits share = job_limits({}, 8);
  auto member = client(options(*server, 0));
  ASSERT_TRUE(member->join(-1, in(seconds(20))).ok());
  const RawMember silent(*server);
  ASSERT_TRUE(silent.authenticated().ok());
  std::vector<std::unique_ptr<RawMember>> faulty;
  for (std::size_t i = 0; i + 2 < share.connections; ++i) {
    faulty.push_back(std::make_unique<RawMember>(*server));
    ASSERT_TRUE(faulty.back()->authenticated().ok());
    send_unfinished(*faulty.back());
    EXPECT_LE(server->usage().buffered_bytes, share.buffered_bytes + (64 << 10));
  }
  // The last two may stay within the limit. A rejection is no change of the job, so the members'
  // sockets are what to wait for.
  const MonotonicTime deadline = in(seconds(20));
  while (faulty.size() > 2) {
    std::vector<pollfd> inputs;
    inputs.reserve(faulty.size());
    for (const auto& one : faulty) inputs.push_back({one->fd(), POLLIN, 0});
    ASSERT_GT(poll(inputs.data(), inputs.size(), net::poll_timeout(deadline)), 0)
        << faulty.size() << " of " << share.connections - 2 << " members wait for a message";
    std::erase_if(faulty, [](const auto& one) {
      if (!one->has_input()) return false;
      EXPECT_THAT(one->receive(), HasSubstr("the job's messages use"));
      return true;
    });
  }
  EXPECT_GE(server->rejections().at("job_buffers") + 4, share.connections);
  EXPECT_LE(server->usage().buffered_bytes, share.buffered_bytes + (64 << 10));
  EXPECT_FALSE(member->epoch_ended()) << "a member with short messages is not affected";
  EXPECT_FALSE(silent.has_input()) << "a connection without buffered bytes is not affected";
  RawMember other(*server, "the other job's own secret", "job-2");
  EXPECT_TRUE(other.authenticated().ok());
}

TEST(Coordinator, AFloodOfMessagesIsTurnedAway) {
  ManualClock clock;  // stands still: no tokens are earned
  auto server = serve(settings(1, 2, 1), clock);
  const double rate = job_limits({}, 2).messages_per_second;
  RawMember faulty(*server);
  faulty.send(encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", {"avx2"}, -1, 0, {}})));
  const std::string beat = encode(ClientMessage(Heartbeat{{}, 0, {}}));
  std::string flood;
  for (int i = 0; i < rate * 10; ++i) flood += net::message_prefix(beat.size()) + beat;
  faulty.send_bytes(flood);
  std::string reply;
  do {
    reply = faulty.receive();
  } while (reply.find("unavailable") == std::string::npos);
  EXPECT_THAT(reply, HasSubstr("more than 300 messages per second"));
  EXPECT_TRUE(faulty.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("job_messages"), 1u);
}

TEST(Coordinator, RemovingAJobReportsTheReasonToItsMembers) {
  Running job(settings(1, 1, 1), 1);
  job.server->remove_job(kUid, "the job was deleted");
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], seconds(5)));
  EXPECT_EQ(job.members[0]->join(-1, in(seconds(5))).error().message, "the job was deleted");
  EXPECT_FALSE(job.server->snapshot(kUid));
}

TEST(Coordinator, JoinReportsTooFewWorkers) {
  ManualClock clock;
  auto server = serve(settings(2, 2, 2), clock);
  auto member = client(options(*server, 0));
  EXPECT_FALSE(member->join(-1, monotonic_now()).ok());
  const MonotonicTime limit = in(seconds(20));
  while (!member->connected() && monotonic_now() < limit) std::this_thread::yield();
  EXPECT_THAT(member->join(-1, monotonic_now()).error().message,
              HasSubstr("too few workers have joined"));
  auto second = client(options(*server, 1));
  EXPECT_TRUE(join_later(*second).get().ok());
  EXPECT_TRUE(member->join(-1, in(seconds(20))).ok()) << "the member is still joined";
}

TEST(Coordinator, JoinCanBeCancelled) {
  ManualClock clock;
  auto server = serve(settings(2, 2, 2), clock);
  auto member = client(options(*server, 0));
  net::WakeUp cancel;
  auto joined = std::async(std::launch::async,
                           [&] { return member->join(-1, net::within(seconds(20), &cancel)); });
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.members.size() == 1; }));
  cancel.signal();
  EXPECT_EQ(joined.get().error().code, ExitCode::kInterrupted);
}

TEST(Coordinator, RejectsInvalidJobs) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  EXPECT_THAT(server->add_job({kUid, key(), settings(1, 1, 1)}).error().message,
              HasSubstr("already registered"));
  EXPECT_THAT(server->add_job({"a b", key(), settings(1, 1, 1)}).error().message,
              HasSubstr("\"a b\""));
  EXPECT_THAT(server->add_job({"c", key(), settings(2, 1, 1)}).error().message,
              HasSubstr("max_world"));
  EXPECT_THAT(server->add_job({"c", key(), settings(1, 1, 1), kMaxEpoch}).error().message,
              HasSubstr("the last epoch of job c is 281474976710656"));
}

}  // namespace
}  // namespace tilewright::rendezvous
