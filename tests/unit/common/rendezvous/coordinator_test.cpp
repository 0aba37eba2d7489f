// Server and clients over the loopback: what members see when processes come, die and lie.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>

#include "common/net/message.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/server.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kUid = "job-1";
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
  result.last_call = milliseconds(100);
  return result;
}

std::unique_ptr<Server> serve(const Settings& job, std::uint16_t port = 0, Epoch floor = 0,
                              Duration patience_with_strangers = seconds(5)) {
  Server::Options options{.listen = {"127.0.0.1", port},
                          .patience_with_strangers = patience_with_strangers};
  auto server = Server::start(options, make_silent_logger()).or_throw();
  server->add_job({kUid, key(), job, floor}).or_throw();
  return server;
}

Client::Options options(const Server& server, int index) {
  Client::Options result;
  result.coordinator = {"127.0.0.1", server.address().port};
  result.job_uid = kUid;
  result.seat = {index, 0};
  result.address = fmt::format("127.0.0.1:{}", 40000 + index);
  result.isa = "avx2";
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

bool bell_rings(Client& member, Duration within) {
  return net::wait_ready(member.epoch_bell().fd(), POLLIN, net::within(within)) == net::Ready::kYes;
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

// A server and `count` clients in one epoch.
struct Running {
  explicit Running(const Settings& job, int count) : server(serve(job)) {
    std::vector<std::future<Result<Assignment>>> joins;
    for (int i = 0; i < count; ++i) {
      members.push_back(client(options(*server, i)));
      joins.push_back(join_later(*members.back()));
    }
    for (auto& join : joins) assignments.push_back(join.get().or_throw());
  }
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Client>> members;
  std::vector<Assignment> assignments;
};

// A peer that proves itself and then says whatever the test wants.
class RawMember {
 public:
  RawMember(const Server& server, const std::string& secret = kSecret,
            const std::string& uid = kUid) {
    socket_ =
        net::connect_to({"127.0.0.1", server.address().port}, net::within(seconds(5))).or_throw();
    net::write_message(socket_, encode_hello(uid), net::within(seconds(5))).or_throw();
    proved_ = net::authenticate(socket_, net::Role::kClient, key(secret), proof_context(uid),
                                net::within(seconds(5)));
  }
  void say(const std::string& message) {
    net::write_message(socket_, message, net::within(seconds(5))).or_throw();
  }
  bool is_closed_within(Duration duration) {
    std::array<std::byte, 4096> ignored;
    while (net::wait_ready(socket_.fd(), POLLIN, net::within(duration)) == net::Ready::kYes) {
      if (!socket_.try_read(ignored).ok()) return true;
    }
    return false;
  }
  const Status& proved() const { return proved_; }

 private:
  net::Socket socket_;
  Status proved_;
};

TEST(Coordinator, MembersGetTheirPlacesAndTheirPeers) {
  Running job(settings(1, 2, 2), 2);
  EXPECT_EQ(job.assignments[0].epoch, 1u);
  EXPECT_EQ(job.assignments[0].world, 2);
  EXPECT_EQ(job.assignments[0].rank, 0);
  EXPECT_EQ(job.assignments[1].rank, 1);
  EXPECT_EQ(job.assignments[0].peers, job.assignments[1].peers);
  EXPECT_EQ(job.assignments[0].peers[1].address, "127.0.0.1:40001");
  EXPECT_FALSE(job.members[0]->epoch_ended());
}

// The next heartbeat would have been an hour away.
TEST(Coordinator, WhatRankZeroSaidLastIsKnownWhenTheJobIsOver) {
  const auto server = serve(settings(1, 1, 1));
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

TEST(Coordinator, ProgressReachesTheOwner) {
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

TEST(Coordinator, ALostMemberEndsTheEpochForTheOthersAndTheNextOneForms) {
  Running job(settings(1, 3, 3), 3);
  job.members[2].reset();
  ASSERT_TRUE(bell_rings(*job.members[0], seconds(5)));
  ASSERT_TRUE(bell_rings(*job.members[1], seconds(5)));
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
  EXPECT_EQ(snapshot.losses[0].lost.who.seat, (Seat{2, 0}));
}

TEST(Coordinator, AnOrderlyLeaveGivesItsReason) {
  Running job(settings(1, 2, 2), 2);
  job.members[1]->leave("stopped by SIGTERM", in(seconds(5)));
  ASSERT_TRUE(bell_rings(*job.members[0], seconds(5)));
  EXPECT_THAT(job.members[0]->reason(), HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(job.server->snapshot(kUid)->losses[0].lost.kind, LossKind::kLeft);
}

TEST(Coordinator, TheHandlerHearsOnceThatTheEpochIsOver) {
  Running job(settings(1, 2, 2), 2);
  std::promise<std::string> told;
  job.members[0]->on_epoch_end([&](const std::string& reason) { told.set_value(reason); });
  job.members[1].reset();
  auto reason = told.get_future();
  ASSERT_EQ(reason.wait_for(seconds(5)), std::future_status::ready);
  EXPECT_THAT(reason.get(), HasSubstr("worker 1"));
  bool at_once = false;
  job.members[0]->on_epoch_end([&](const std::string&) { at_once = true; });
  EXPECT_TRUE(at_once);
  job.members[0]->join(-1, in(seconds(5))).or_throw();
  job.members[0]->on_epoch_end([&](const std::string&) { ADD_FAILURE() << "of the next epoch"; });
  job.members[0]->on_epoch_end({});
  job.server->remove_job(kUid, "deleted");
  EXPECT_TRUE(bell_rings(*job.members[0], seconds(5)));
}

TEST(Coordinator, AMemberThatFallsSilentIsTakenForDead) {
  Settings job = settings(1, 2, 2);
  job.heartbeat_timeout = milliseconds(300);
  auto server = serve(job);
  auto living = client(options(*server, 0));
  auto joined = join_later(*living);
  RawMember silent(*server);
  silent.say(encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", "avx2", -1, 0, {}})));
  ASSERT_EQ(joined.get().or_throw().world, 2);
  ASSERT_TRUE(bell_rings(*living, seconds(5)));
  EXPECT_THAT(living->reason(), HasSubstr("heartbeat"));
  EXPECT_TRUE(silent.is_closed_within(seconds(5)));
}

TEST(Coordinator, ANewcomerIsTakenInWhenTheMembersComeToABoundary) {
  Running job(settings(1, 3, 2), 2);
  auto newcomer = client(options(*job.server, 2));
  auto joined = join_later(*newcomer);
  ASSERT_TRUE(
      eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kDraining; }));
  auto asked = [&](Client& member) {
    const MonotonicTime deadline = in(seconds(5));
    while (!member.reform_asked() && monotonic_now() < deadline) std::this_thread::yield();
    return member.reform_asked();
  };
  EXPECT_TRUE(asked(*job.members[0]));
  EXPECT_TRUE(asked(*job.members[1]));
  EXPECT_FALSE(job.members[0]->epoch_ended()) << "the running step goes on";
  auto first = join_later(*job.members[0]);
  auto second = join_later(*job.members[1]);
  EXPECT_EQ(first.get().or_throw().world, 3);
  EXPECT_EQ(second.get().or_throw().rank, 1);
  EXPECT_EQ(joined.get().or_throw().rank, 2);
  EXPECT_EQ(job.server->snapshot(kUid)->number_of_losses, 0u);
}

TEST(Coordinator, TheOwnerCanWaitForAWorkerThatIsBeingRestarted) {
  auto server = serve(settings(1, 2, 2));
  server->expect(kUid, {1, 2, 2, seconds(20)}).or_throw();
  auto first = client(options(*server, 0));
  auto joined = join_later(*first);
  EXPECT_EQ(joined.wait_for(milliseconds(300)), std::future_status::timeout) << "last call: 0.1 s";
  auto second = client(options(*server, 1));
  EXPECT_EQ(join_later(*second).get().or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().world, 2);
}

TEST(Coordinator, ARestartDoesNotDisturbTheTraining) {
  Running job(settings(1, 2, 2), 2);
  const std::uint16_t port = job.server->address().port;
  for (const Epoch floor : {Epoch{0}, Epoch{1}}) {
    job.server.reset();
    EXPECT_FALSE(bell_rings(*job.members[0], milliseconds(100)));
    job.server = serve(settings(1, 2, 2), port, floor);
    ASSERT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
      return snapshot.phase == Phase::kRunning && snapshot.members.size() == 2;
    }));
    const Snapshot snapshot = *job.server->snapshot(kUid);
    EXPECT_EQ(snapshot.epoch, 1u);
    EXPECT_EQ(snapshot.members[1].rank, 1);
  }
  EXPECT_FALSE(job.members[0]->epoch_ended());
  // The new coordinator is as good as the old one.
  job.members[1].reset();
  ASSERT_TRUE(bell_rings(*job.members[0], seconds(5)));
  EXPECT_EQ(job.members[0]->join(-1, in(seconds(10))).or_throw().epoch, 2u);
}

TEST(Coordinator, AMemberThatWaitsForAnEpochSurvivesARestartToo) {
  auto server = serve(settings(2, 2, 2));
  auto first = client(options(*server, 0));
  auto joined = join_later(*first);
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.members.size() == 1; }));
  const std::uint16_t port = server->address().port;
  server.reset();
  server = serve(settings(2, 2, 2), port);
  auto second = client(options(*server, 1));
  EXPECT_EQ(join_later(*second).get().or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().rank, 0);
}

TEST(Coordinator, AHungCoordinatorIsLeftForANewConnection) {
  auto listener = net::Listener::bind({"127.0.0.1", 0}).or_throw();
  Client::Options hung;
  hung.coordinator = {"127.0.0.1", listener.local_address().port};
  hung.job_uid = kUid;
  hung.isa = "avx2";
  hung.silence = milliseconds(100);
  hung.heartbeat_interval = milliseconds(20);
  auto member = client(hung);
  auto joined = join_later(*member, -1, seconds(2));
  std::vector<net::Socket> accepted;
  for (int i = 0; i < 2; ++i) {
    net::Socket socket = listener.accept(net::within(seconds(5))).or_throw();
    ASSERT_EQ(
        decode_hello(net::read_message(socket, kMaxHelloBytes, net::within(seconds(5))).or_throw())
            .value(),
        kUid);
    net::authenticate(socket, net::Role::kServer, key(), proof_context(kUid),
                      net::within(seconds(5)))
        .or_throw();
    accepted.push_back(std::move(socket));
  }
  member->leave("enough", in(milliseconds(100)));
  EXPECT_FALSE(joined.get().ok());
}

TEST(Coordinator, AWrongSecretGetsNothing) {
  auto server = serve(settings(1, 2, 1));
  auto stranger = client(options(*server, 1), "another secret of enough bytes");
  const auto joined = stranger->join(-1, in(milliseconds(300)));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(joined.error().message, HasSubstr("secret"));
  EXPECT_TRUE(server->snapshot(kUid)->members.empty());
  auto friendly = client(options(*server, 0));
  EXPECT_TRUE(friendly->join(-1, in(seconds(5))).ok());
}

TEST(Coordinator, TheSecretOfOneJobDoesNotOpenAnother) {
  auto server = serve(settings(1, 1, 1));
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  EXPECT_TRUE(RawMember(*server, "the other job's own secret", "job-2").proved().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-2").proved().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-3").proved().ok());
  auto member = client(options(*server, 0));
  EXPECT_TRUE(member->join(-1, in(seconds(5))).ok());
  EXPECT_EQ(server->snapshot("job-2")->members.size(), 0u);
  EXPECT_FALSE(server->snapshot("job-3"));
}

TEST(Coordinator, ARestartedProcessTakesItsSeatAndTheOldOneIsFenced) {
  Running job(settings(1, 2, 2), 2);
  auto successor = client(options(*job.server, 1));
  auto joined = join_later(*successor);
  ASSERT_TRUE(bell_rings(*job.members[1], seconds(5)));
  const auto old = job.members[1]->join(-1, in(seconds(5)));
  EXPECT_EQ(old.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(old.error().message, HasSubstr("newer process"));
  ASSERT_TRUE(bell_rings(*job.members[0], seconds(5)));
  EXPECT_EQ(job.members[0]->join(-1, in(seconds(5))).or_throw().world, 2);
  EXPECT_EQ(joined.get().or_throw().rank, 1);
}

TEST(Coordinator, AnotherInstructionSetIsRefusedWithTheSentence) {
  Running job(settings(1, 2, 1), 1);
  auto other = options(*job.server, 1);
  other.isa = "amx";
  const auto joined = client(other)->join(-1, in(seconds(5)));
  EXPECT_EQ(joined.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(joined.error().message, HasSubstr("the instruction set amx, the job with avx2"));
  EXPECT_FALSE(job.members[0]->epoch_ended());
}

TEST(Coordinator, TheJobEndsInOrder) {
  Running job(settings(1, 2, 2), 2);
  EXPECT_TRUE(job.members[1]->finish(in(seconds(5))).ok());
  job.members[1].reset();
  EXPECT_TRUE(job.members[0]->finish(in(seconds(5))).ok());
  job.members[0].reset();
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
    return snapshot.phase == Phase::kClosed && snapshot.members.empty();
  }));
  EXPECT_EQ(job.server->snapshot(kUid)->number_of_losses, 0u);
  auto late = client(options(*job.server, 0));
  const auto joined = late->join(-1, in(seconds(5)));
  EXPECT_EQ(joined.error().code, ExitCode::kOk) << "nothing is left to do";
}

TEST(Coordinator, FinishingWhileTheCoordinatorIsAwayWaitsForItsReturn) {
  Running job(settings(1, 1, 1), 1);
  const std::uint16_t port = job.server->address().port;
  job.server.reset();
  auto finished =
      std::async(std::launch::async, [&] { return job.members[0]->finish(in(seconds(10))).ok(); });
  job.server = serve(settings(1, 1, 1), port, 1);
  EXPECT_TRUE(finished.get());
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kClosed; }));
}

TEST(Coordinator, GarbageDisturbsNobody) {
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
  const std::string join = encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", "avx2", -1, 0, {}}));
  for (const std::string& said :
       {std::string("{"), std::string("[]"), std::string(R"({"type":"x"})"),
        encode(ClientMessage(Heartbeat{{}, 1, {}}))}) {
    RawMember liar(*job.server);
    ASSERT_TRUE(liar.proved().ok());
    liar.say(said);
    EXPECT_TRUE(liar.is_closed_within(seconds(5))) << said;
  }
  EXPECT_FALSE(job.members[0]->epoch_ended());
  EXPECT_TRUE(job.members[0]->connected());
}

TEST(Coordinator, AStrangerThatSaysNothingIsNotAwaitedForEver) {
  auto server = serve(settings(1, 1, 1), 0, 0, milliseconds(100));
  net::Socket socket =
      net::connect_to({"127.0.0.1", server->address().port}, net::within(seconds(5))).or_throw();
  EXPECT_EQ(net::wait_ready(socket.fd(), POLLIN, net::within(seconds(5))), net::Ready::kYes);
  EXPECT_TRUE(socket.peer_closed());
}

TEST(Coordinator, ARemovedJobTellsItsMembersWhy) {
  Running job(settings(1, 1, 1), 1);
  job.server->remove_job(kUid, "the job was deleted");
  ASSERT_TRUE(bell_rings(*job.members[0], seconds(5)));
  EXPECT_EQ(job.members[0]->join(-1, in(seconds(5))).error().message, "the job was deleted");
  EXPECT_FALSE(job.server->snapshot(kUid));
}

TEST(Coordinator, AJoinWithoutEnoughOthersSaysSo) {
  auto server = serve(settings(2, 2, 2));
  auto member = client(options(*server, 0));
  EXPECT_THAT(member->join(-1, in(milliseconds(200))).error().message,
              HasSubstr("too few workers have joined"));
  auto second = client(options(*server, 1));
  EXPECT_TRUE(join_later(*second).get().ok());
  EXPECT_TRUE(member->join(-1, in(seconds(5))).ok()) << "the wish stands";
}

TEST(Coordinator, AWaitForTheOthersCanBeCancelled) {
  auto server = serve(settings(2, 2, 2));
  auto member = client(options(*server, 0));
  net::WakeUp bell;
  auto joined = std::async(std::launch::async,
                           [&] { return member->join(-1, net::within(seconds(20), &bell)); });
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.members.size() == 1; }));
  bell.signal();
  EXPECT_EQ(joined.get().error().code, ExitCode::kInterrupted);
}

TEST(Coordinator, BadJobsAreRefused) {
  auto server = serve(settings(1, 1, 1));
  EXPECT_THAT(server->add_job({kUid, key(), settings(1, 1, 1)}).error().message,
              HasSubstr("served already"));
  EXPECT_THAT(server->add_job({"a b", key(), settings(1, 1, 1)}).error().message,
              HasSubstr("\"a b\""));
  EXPECT_THAT(server->add_job({"c", key(), settings(2, 1, 1)}).error().message,
              HasSubstr("max_world"));
}

}  // namespace
}  // namespace tilewright::rendezvous
