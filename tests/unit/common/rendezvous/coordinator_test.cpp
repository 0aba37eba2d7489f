// Server and clients over loopback: what members observe when processes join, die and send
// malformed input.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "common/rendezvous/report_failure.h"
#include "tests/support/local_ports.h"
#include "tests/unit/common/net/net_fixtures.h"
#include "tests/unit/common/net/relay.h"
#include "tests/unit/common/rendezvous/coordinator_fixtures.h"

namespace tilewright::rendezvous {
namespace {

using ::testing::HasSubstr;

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
  progress.slow_workers = {{{1, 2}, 2.5, 1}};
  job.members[1]->report(progress);
  EXPECT_TRUE(eventually(*job.server, [&](const Snapshot& snapshot) {
    return snapshot.members.size() == 2 && snapshot.members[1].progress == progress;
  }));
  EXPECT_EQ(job.server->snapshot(kUid)->members[1].rank, 1);
}

TEST(Coordinator, ALostMemberEndsTheEpochAndTheNextOneForms) {
  Running job(settings(1, 3, 3), 3);
  job.lose(2);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[1], kSoon));
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

// Both connections go silent two seconds after the members have joined. Without others the
// coordinator would count both members as lost ten seconds later.
TEST(Coordinator, AConnectionThatDiesSilentlyDoesNotEndTheEpoch) {
  ManualClock clock;
  const auto server = serve(settings(2, 2, 2), clock);
  net::Relay relay(server->address());
  std::vector<std::unique_ptr<Client>> members;
  std::vector<std::future<Result<Assignment>>> joins;
  for (int index = 0; index < 2; ++index) {
    Client::Options relayed = options(*server, index);
    relayed.coordinator = relay.address();
    relayed.heartbeat_interval = seconds(1);
    relayed.clock = &clock;
    members.push_back(client(relayed));
    joins.push_back(join_later(*members.back()));
  }
  for (auto& joined : joins) ASSERT_EQ(joined.get().or_throw().epoch, 1u);
  const auto advance_by_a_second = [&] {
    const std::size_t replies = relay.delivered("pulse") + members.size();
    clock.advance(seconds(1));
    return relay.delivers("pulse", replies, kSoon);
  };
  ASSERT_TRUE(advance_by_a_second());
  ASSERT_TRUE(advance_by_a_second()) << "who sends another heartbeat has read the first reply";
  relay.mute_connections();
  // The joins of those who are in an epoch.
  for (int second = 0; !relay.delivers("\"holding\"", members.size(), milliseconds(500));
       ++second) {
    ASSERT_LT(second, 8);
    clock.advance(seconds(1));
  }
  for (int second = 0; second < 9; ++second) ASSERT_TRUE(advance_by_a_second()) << second;
  EXPECT_EQ(server->snapshot(kUid)->epoch, 1u);
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 0u);
  for (const auto& member : members) EXPECT_FALSE(member->epoch_ended());
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
  job.members[1]->leave("stopped by SIGTERM", in(kSoon));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
  EXPECT_THAT(job.members[0]->reason(), HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(job.server->snapshot(kUid)->losses[0].lost.kind, LossKind::kLeft);
}

// A member that leaves before it has read its assignment. Its epoch ends without the end of its
// connection, which stays open, and without reconnect_timeout, because the clock stands still.
TEST(Coordinator, AMemberMayLeaveWhileItsAssignmentIsInFlight) {
  ManualClock clock;
  const auto server = serve(settings(1, 2, 2), clock);
  RawMember leaving(*server);
  leaving.send(encode(Join{{{1, 0}, 5}, "127.0.0.1:40001", {"avx2"}, -1, 0, {}}));
  const auto zero = client(options(*server, 0));
  ASSERT_EQ(zero->join(-1, in(seconds(20))).or_throw().world, 2);
  leaving.send(R"({"type": "leave", "epoch": 0, "reason": "stopped by SIGTERM"})");
  ASSERT_TRUE(wait_for_epoch_end(*zero, kSoon));
  EXPECT_THAT(zero->reason(), HasSubstr("worker 1 was lost (left): stopped by SIGTERM"));
  EXPECT_EQ(zero->join(-1, in(seconds(20))).or_throw().world, 1);
}

// The late message of an earlier connection says nothing about the one that has replaced it.
TEST(Coordinator, OnlyTheCurrentConnectionOfAMemberCanLeave) {
  ManualClock clock;
  const auto server = serve(settings(1, 3, 3), clock);
  const std::string join = encode(Join{{{1, 0}, 5}, "127.0.0.1:40001", {"avx2"}, -1, 0, {}});
  const std::string newer_join = encode(Join{{{2, 0}, 6}, "127.0.0.1:40002", {"avx2"}, -1, 0, {}});
  const std::string leave = R"({"type": "leave", "epoch": 0, "reason": "late"})";
  const auto joined = [](int count) {
    return [count](const Snapshot& now) { return static_cast<int>(now.members.size()) == count; };
  };
  RawMember before(*server);
  before.send(join);
  ASSERT_TRUE(eventually(*server, joined(1)));
  RawMember older(*server);
  older.send(encode(Join{{{2, 0}, 5}, "127.0.0.1:40002", {"avx2"}, -1, 0, {}}));
  ASSERT_TRUE(eventually(*server, joined(2)));
  RawMember reconnected(*server);
  reconnected.send(join);
  RawMember newer(*server);
  newer.send(newer_join);
  EXPECT_THAT(older.receive(), HasSubstr("a newer process has replaced worker 2"));
  before.send(leave);
  older.send(leave);
  const auto zero = client(options(*server, 0));
  const Assignment assigned = zero->join(-1, in(seconds(20))).or_throw();
  ASSERT_EQ(assigned.world, 3);
  EXPECT_EQ(assigned.peers[1].who, (MemberId{{1, 0}, 5}));
  EXPECT_EQ(assigned.peers[2].who, (MemberId{{2, 0}, 6}));
  EXPECT_FALSE(wait_for_epoch_end(*zero, milliseconds(200)));
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 1u) << "the replaced process";
}

TEST(Coordinator, CallsTheEpochEndHandlerOnce) {
  Running job(settings(1, 2, 2), 2);
  std::promise<std::string> reported;
  job.members[0]->on_epoch_end([&](const std::string& reason) { reported.set_value(reason); });
  job.lose(1);
  auto reason = reported.get_future();
  ASSERT_EQ(reason.wait_for(kSoon), std::future_status::ready);
  EXPECT_THAT(reason.get(), HasSubstr("worker 1"));
  bool at_once = false;
  job.members[0]->on_epoch_end([&](const std::string&) { at_once = true; });
  EXPECT_TRUE(at_once);
  auto joined = join_later(*job.members[0]);
  joined.get().or_throw();
  job.members[0]->on_epoch_end([&](const std::string&) { ADD_FAILURE() << "removed handler"; });
  job.members[0]->on_epoch_end({});
  job.server->remove_job(kUid, "deleted");
  EXPECT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
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
  EXPECT_TRUE(silent.is_closed_within(kSoon));
}

TEST(Coordinator, ANewMemberJoinsAtAStepBoundary) {
  Running job(settings(1, 3, 2), 2);
  auto new_member = client(options(*job.server, 2));
  auto joined = join_later(*new_member);
  ASSERT_TRUE(
      eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kDraining; }));
  auto reform_requested = [&](Client& member) {
    const MonotonicTime deadline = in(kSoon);
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
  const testing::ReservedPort port;
  Running job(settings(1, 2, 2), 2, port.number());
  for (const Epoch last_epoch : {Epoch{0}, Epoch{1}}) {
    job.server.reset();
    while (job.members[0]->connected()) std::this_thread::yield();
    EXPECT_FALSE(job.members[0]->epoch_ended());
    job.server = serve(settings(1, 2, 2), job.clock, port.number(), last_epoch);
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
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
  EXPECT_EQ(join_later(*job.members[0]).get().or_throw().epoch, 2u);
}

TEST(Coordinator, AWaitingMemberSurvivesACoordinatorRestart) {
  ManualClock clock;
  const testing::ReservedPort port;
  auto server = serve(settings(2, 2, 2), clock, port.number());
  auto first = client(options(*server, 0));
  auto joined = join_later(*first);
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.members.size() == 1; }));
  server.reset();
  server = serve(settings(2, 2, 2), clock, port.number());
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
    ASSERT_EQ(decode_hello(net::read_message(socket, kMaxHelloBytes, net::within(kSoon)).or_throw())
                  .value()
                  .job_uid,
              kUid);
    net::authenticate(socket, net::Role::kServer, key(), proof_context(kUid), net::within(kSoon))
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
  EXPECT_TRUE(friendly->join(-1, in(kSoon)).ok());
}

TEST(Coordinator, RejectsTheSecretOfAnotherJob) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  EXPECT_TRUE(RawMember(*server, "the other job's own secret", "job-2").authenticated().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-2").authenticated().ok());
  EXPECT_FALSE(RawMember(*server, kSecret, "job-3").authenticated().ok());
  auto member = client(options(*server, 0));
  EXPECT_TRUE(member->join(-1, in(kSoon)).ok());
  EXPECT_EQ(server->snapshot("job-2")->members.size(), 0u);
  EXPECT_FALSE(server->snapshot("job-3"));
}

TEST(Coordinator, ARestartedProcessReplacesTheOldOneWhichIsFenced) {
  Running job(settings(1, 2, 2), 2);
  auto successor = client(options(*job.server, 1));
  auto joined = join_later(*successor);
  ASSERT_TRUE(wait_for_epoch_end(*job.members[1], kSoon));
  const auto old = job.members[1]->join(-1, in(kSoon));
  EXPECT_EQ(old.error().code, ExitCode::kReplaced);
  EXPECT_THAT(old.error().message, HasSubstr("newer process"));
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
  EXPECT_EQ(job.members[0]->join(-1, in(kSoon)).or_throw().world, 2);
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

TEST(Coordinator, TellsAWaitingMemberWhetherTheOthersTrain) {
  Running job(settings(1, 1, 1), 1);
  const auto spare = client(options(*job.server, 1));
  auto joined = join_later(*spare);
  EXPECT_TRUE(eventually(*job.server, [&](const Snapshot&) { return spare->others_train(); }));
  job.lose(0);
  EXPECT_EQ(joined.get().or_throw().world, 1);
  EXPECT_FALSE(spare->others_train());
}

// The members that have joined and those that come later get the reason.
TEST(Coordinator, AnAgentsPermanentFailureEndsItsJob) {
  for (const bool ends : {true, false}) {
    JobSpec spec{kUid, key(), settings(2, 2, 2)};
    spec.ends_with_an_agent = ends;
    std::vector<JobSpec> jobs;
    jobs.push_back(std::move(spec));
    const auto server = Server::start({}, make_silent_logger(), std::move(jobs)).or_throw();
    const auto first = client(options(*server, 0));
    auto joined = join_later(*first);
    ASSERT_TRUE(eventually(*server, [](const Snapshot& now) { return now.members.size() == 1; }));
    ASSERT_TRUE(report_failure(server->address(), kUid, key(), false, 1, "no data on host 1",
                               in(seconds(20)))
                    .ok());
    const auto second = client(options(*server, 1));
    auto later = join_later(*second);
    if (!ends) {
      EXPECT_EQ(joined.get().or_throw().world, 2);
      EXPECT_TRUE(later.get().ok());
      continue;
    }
    for (auto* one : {&joined, &later}) {
      const auto result = one->get();
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, ExitCode::kUnsupported);
      EXPECT_EQ(result.error().message, "no data on host 1");
    }
  }
}

// Host 2 has other flags or no data.
TEST(Coordinator, AJobContinuesWithoutAHostThatHasNotTrainedIfTheOthersSuffice) {
  struct Case {
    int failed, min_world;
    bool continues;
  };
  for (const auto& [failed, min_world, continues] :
       {Case{2, 2, true}, Case{2, 3, false}, Case{1, 1, false}}) {
    SCOPED_TRACE(fmt::format("host {} fails, the minimum is {}", failed, min_world));
    JobSpec spec{kUid, key(), settings(2, 3, 2)};
    spec.ends_with_an_agent = true;
    std::vector<JobSpec> jobs;
    jobs.push_back(std::move(spec));
    const auto server = Server::start({}, make_silent_logger(), std::move(jobs)).or_throw();
    const auto first = client(options(*server, 0)), second = client(options(*server, 1));
    auto joined = join_later(*first);
    ASSERT_TRUE(second->join(-1, in(seconds(20))).ok());
    ASSERT_TRUE(joined.get().ok());
    Progress training;
    training.phase = "training";
    for (Client* member : {first.get(), second.get()}) member->report(training);
    ASSERT_TRUE(eventually(*server, [](const Snapshot& now) {
      return std::ranges::all_of(now.members,
                                 [](const MemberView& one) { return !one.progress.phase.empty(); });
    }));
    server->expect(kUid, {min_world, 3, 3, {}}).or_throw();
    ASSERT_TRUE(report_failure(server->address(), kUid, key(), false, failed, "other flags",
                               in(seconds(20)))
                    .ok());
    const auto late = client(options(*server, 2));
    auto joins = join_later(*late);
    if (continues) {
      EXPECT_TRUE(eventually(*server, [](const Snapshot& now) { return now.members.size() == 3; }));
      EXPECT_FALSE(first->epoch_ended());
    } else {
      EXPECT_EQ(joins.get().error().message, "other flags");
      EXPECT_TRUE(wait_for_epoch_end(*first, seconds(20)));
    }
    late->leave("the test ends", in(kSoon));
  }
}

TEST(Coordinator, ClosesAfterAllMembersFinish) {
  Running job(settings(1, 2, 2), 2);
  EXPECT_TRUE(job.members[1]->finish(in(kSoon)).ok());
  job.members[1].reset();
  EXPECT_TRUE(job.members[0]->finish(in(kSoon)).ok());
  job.members[0].reset();
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& snapshot) {
    return snapshot.phase == Phase::kClosed && snapshot.members.empty();
  }));
  EXPECT_EQ(job.server->snapshot(kUid)->loss_count, 0u);
  auto late = client(options(*job.server, 0));
  const auto joined = late->join(-1, in(kSoon));
  EXPECT_EQ(joined.error().code, ExitCode::kOk) << "nothing is left to do";
}

TEST(Coordinator, FinishWaitsForTheCoordinatorToReturn) {
  const testing::ReservedPort port;
  Running job(settings(1, 1, 1), 1, port.number());
  job.server.reset();
  auto finished =
      std::async(std::launch::async, [&] { return job.members[0]->finish(in(kSoon)).ok(); });
  job.server = serve(settings(1, 1, 1), job.clock, port.number(), 1);
  EXPECT_TRUE(finished.get());
  EXPECT_TRUE(eventually(*job.server, [](const Snapshot& s) { return s.phase == Phase::kClosed; }));
}

TEST(Coordinator, MalformedInputDoesNotAffectMembers) {
  Running job(settings(1, 2, 1), 1);
  const net::Address address{"127.0.0.1", job.server->address().port};
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\0'),
        std::string("\xff\xff\xff\xff"), std::string("\x05\x00\x00\x00hello", 9)}) {
    net::Socket socket = net::connect_to(address, net::within(kSoon)).or_throw();
    [[maybe_unused]] const Status sent =
        socket.write_all(std::as_bytes(std::span(garbage)), net::within(kSoon));
    std::array<std::byte, 64> ignored;
    while (net::wait_ready(socket.fd(), POLLIN, net::within(kSoon)) == net::Ready::kYes &&
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
    EXPECT_TRUE(sender.is_closed_within(kSoon)) << message;
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
  EXPECT_TRUE(newer.is_closed_within(kSoon));
  EXPECT_FALSE(job.members[0]->epoch_ended());
}

// As after a change of the coordinator's release.
TEST(Coordinator, IsUnavailableToAMemberInAnEpochWithAnotherProtocolVersion) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 1), clock);
  const std::string join = R"({"type": "join", "holding": {"as that version writes it": 1}})";
  RawMember other(*server, kSecret, kUid, kProtocolVersion + 1);
  other.send(join);
  const auto answer = decode_server_message(other.receive()).or_throw();
  ASSERT_TRUE(std::holds_alternative<Unavailable>(answer));
  EXPECT_THAT(std::get<Unavailable>(answer).reason,
              HasSubstr(fmt::format("uses version {} of the rendezvous", kProtocolVersion + 1)));
  EXPECT_TRUE(other.is_closed_within(kSoon));
  EXPECT_EQ(server->rejections().at("version"), 1u);
  RawMember first(*server, kSecret, kUid, 1);  // cannot read `unavailable`
  first.send(join);
  EXPECT_TRUE(std::holds_alternative<Refuse>(decode_server_message(first.receive()).or_throw()));
}

TEST(Coordinator, RemovingAJobReportsTheReasonToItsMembers) {
  Running job(settings(1, 1, 1), 1);
  job.server->remove_job(kUid, "the job was deleted");
  ASSERT_TRUE(wait_for_epoch_end(*job.members[0], kSoon));
  EXPECT_EQ(job.members[0]->join(-1, in(kSoon)).error().message, "the job was deleted");
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
