// Scripted event sequences of one job's membership.
#include "common/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/full_assignment.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::full_assignment;

MemberId member(int index, std::uint64_t instance_id = 1, int local_rank = 0) {
  return {{index, local_rank}, instance_id};
}

// Drives one State with its own time and keeps the actions of the last step.
class Job {
 public:
  explicit Job(int min, int max, int expected, Epoch last_epoch = 0) {
    settings.min_world = min;
    settings.max_world = max;
    settings.expected = expected;
    state = make_state(settings, {last_epoch}, now);
  }
  // A restarted coordinator keeps only the settings, and what its owner has stored.
  void restart(Epoch last_epoch, const std::string& isa = "") {
    state = make_state(settings, {last_epoch, -1, isa}, now);
  }

  const Actions& handle(const Event& event) { return last = step(state, event, now); }
  const Actions& join(MemberId who, Epoch after = 0, const std::string& isa = "avx2",
                      std::int64_t checkpoint = -1) {
    return handle(Join{who, address(who), {isa}, checkpoint, after, {}});
  }
  const Actions& join_with(MemberId who, std::vector<std::string> isas, Epoch after = 0) {
    return handle(Join{who, address(who), std::move(isas), -1, after, {}});
  }
  const Actions& reconnect(MemberId who, const Assignment& held) {
    return handle(Join{who, address(who), {"avx2"}, -1, 0, held});
  }
  const Actions& tick_after(Duration duration) {
    now += duration;
    return handle(Tick{});
  }
  // Closes the member's connection until it is lost.
  const Actions& lose(MemberId who) {
    handle(ConnectionClosed{who, "reset"});
    return tick_after(settings.reconnect_timeout);
  }
  static std::string address(const MemberId& who) {
    return "10.0.0." + std::to_string(who.process.worker_index) + ":29500";
  }

  template <typename T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const Action& action : last)
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    return found;
  }
  // The assignment that the last step gave to a member.
  std::optional<Assignment> assigned(const MemberId& who) const {
    for (const Assign& assign : all<Assign>())
      if (assign.to == who) return full_assignment(assign);
    return std::nullopt;
  }
  std::optional<EndEpoch> ended(const MemberId& who) const {
    for (const EndEpoch& end : all<EndEpoch>())
      if (end.to == who) return end;
    return std::nullopt;
  }

  Settings settings;
  MonotonicTime now{seconds(1000)};
  State state;
  Actions last;
};

// Two members in epoch 1.
Job running_pair(int max = 2) {
  Job job(1, max, 2);
  job.join(member(0));
  job.join(member(1));
  return job;
}

TEST(Membership, FormsWhenTheExpectedMembersHaveJoined) {
  Job job(1, 4, 2);
  EXPECT_TRUE(job.join(member(1)).empty());
  job.join(member(0));
  ASSERT_EQ(job.all<Assign>().size(), 2u);
  const Assignment first = *job.assigned(member(0));
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(first.world, 2);
  EXPECT_EQ(job.assigned(member(1))->rank, 1);
  EXPECT_EQ(first.peers[1].address, "10.0.0.1:29500");
  EXPECT_EQ(job.state.phase, Phase::kRunning);
}

// A list for each of 1,024 members would take 80 MB.
TEST(Membership, TheMembersOfAnEpochShareTheListOfPeers) {
  Job job(kMaxWorld, kMaxWorld, kMaxWorld);
  for (int i = 0; i < kMaxWorld; ++i) job.join(member(i));
  const std::vector<Assign> assigns = job.all<Assign>();
  ASSERT_EQ(assigns.size(), std::size_t{kMaxWorld});
  EXPECT_EQ(assigns.front().peers->size(), std::size_t{kMaxWorld});
  for (const Assign& assign : assigns) {
    EXPECT_EQ(assign.peers.get(), assigns.front().peers.get());
    EXPECT_TRUE(assign.assignment.peers.empty());
  }
}

TEST(Membership, RanksFollowWorkerIndexThenLocalRank) {
  Job job(1, 8, 4);
  job.join(member(7, 1, 3));
  job.join(member(2, 1, 1));
  job.join(member(7, 1, 0));
  job.join(member(2, 1, 0));
  EXPECT_EQ(job.assigned(member(2, 1, 0))->rank, 0);
  EXPECT_EQ(job.assigned(member(2, 1, 1))->rank, 1);
  EXPECT_EQ(job.assigned(member(7, 1, 0))->rank, 2);
  const Assignment last = *job.assigned(member(7, 1, 3));
  EXPECT_EQ(last.rank, 3);
  EXPECT_EQ(last.local_rank, 1);
  EXPECT_EQ(last.local_world, 2);
}

TEST(Membership, WaitsForTheJoinQuietPeriodBelowExpected) {
  Job job(1, 2, 2);
  job.join(member(0));
  EXPECT_EQ(next_deadline(job.state), job.now + seconds(3));
  EXPECT_TRUE(job.tick_after(milliseconds(2999)).empty());
  job.tick_after(milliseconds(1));
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, OnlyNewJoinsRestartTheQuietPeriod) {
  Job job(1, 3, 3);
  job.join(member(0));
  job.tick_after(seconds(2));
  job.join(member(1));
  job.tick_after(seconds(2));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1));
  job.tick_after(seconds(1));
  EXPECT_EQ(job.state.phase, Phase::kRunning);
}

TEST(Membership, NeverFormsBelowTheMinimum) {
  Job job(2, 4, 2);
  job.settings.heartbeat_timeout = seconds(1000);
  job.restart(0);
  job.join(member(3));
  job.tick_after(seconds(500));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
}

TEST(Membership, ABrokenConnectionDoesNotEndTheEpoch) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(1));
  const State before = job.state;
  job.handle(ConnectionClosed{member(1), "connection reset"});
  ASSERT_EQ(job.all<MemberDisconnected>().size(), 1u);
  EXPECT_EQ(job.all<MemberDisconnected>()[0].epoch, 1u);
  EXPECT_EQ(job.last.size(), 1u);
  EXPECT_TRUE(job.tick_after(milliseconds(2999)).empty());
  EXPECT_TRUE(job.reconnect(member(1), held).empty());
  State after = job.state;
  EXPECT_EQ(std::exchange(after.members.at({1, 0}).last_seen, before.members.at({1, 0}).last_seen),
            job.now);
  EXPECT_EQ(after, before);
  EXPECT_TRUE(job.tick_after(seconds(3)).empty());
}

TEST(Membership, AMemberThatDoesNotReconnectEndsTheEpoch) {
  Job job = running_pair();
  job.handle(ConnectionClosed{member(1), "connection reset"});
  EXPECT_EQ(next_deadline(job.state), job.now + seconds(3));
  job.tick_after(seconds(3));
  ASSERT_TRUE(job.ended(member(0)));
  EXPECT_EQ(job.ended(member(0))->epoch, 1u);
  EXPECT_THAT(job.ended(member(0))->reason,
              HasSubstr("worker 1 was lost (connection closed): connection reset; it did not "
                        "reconnect within 3.0 s"));
  ASSERT_EQ(job.all<MemberLost>().size(), 1u);
  EXPECT_EQ(job.all<MemberLost>()[0].who, member(1));
  EXPECT_EQ(job.all<MemberLost>()[0].epoch, 1u);
  job.join(member(0), 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
}

// The collectives of a survivor fail at once when another process dies.
TEST(Membership, AMemberThatGivesUpTheEpochEndsTheWaitForADisconnectedOne) {
  Job job = running_pair();
  job.handle(ConnectionClosed{member(1), "reset"});
  job.join(member(0), 1);
  ASSERT_EQ(job.all<MemberLost>().size(), 1u);
  EXPECT_EQ(job.all<MemberLost>()[0].who, member(1));
  EXPECT_EQ(job.all<MemberLost>()[0].kind, LossKind::kConnectionClosed);
  EXPECT_EQ(job.all<MemberLost>()[0].epoch, 1u);
  EXPECT_EQ(job.all<MemberLost>()[0].rank, 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
}

TEST(Membership, AllDisconnectedMembersAreLostWhenTheEpochEnds) {
  Job job(1, 3, 3);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  job.handle(ConnectionClosed{member(1), "reset"});
  job.handle(ConnectionClosed{member(2), "reset"});
  job.handle(Leave{member(0), "stopped"});
  EXPECT_EQ(job.all<MemberLost>().size(), 3u);
  EXPECT_TRUE(job.all<EndEpoch>().empty());
  EXPECT_TRUE(job.state.members.empty());
}

TEST(Membership, TheExitOfAWorkerEndsTheWaitForIt) {
  Job job = running_pair();
  job.handle(ConnectionClosed{member(1), "reset"});
  EXPECT_TRUE(job.handle(WorkerExited{0, {}}).empty());
  EXPECT_TRUE(job.handle(WorkerExited{1, 1}).empty()) << "another process of the worker";
  job.handle(WorkerExited{1, {}});
  ASSERT_TRUE(job.ended(member(0)));
  EXPECT_THAT(job.ended(member(0))->reason, HasSubstr("worker 1 was lost (connection closed): "
                                                      "reset; it exited"));
}

// The owner may see the exit before the coordinator sees the end of the connection.
TEST(Membership, AConnectionThatClosesAfterTheReportOfAnExitIsALoss) {
  for (const Duration later : {Duration(milliseconds(10)), Duration(seconds(3))}) {
    Job job = running_pair();
    EXPECT_TRUE(job.handle(WorkerExited{1, {}}).empty()) << "perhaps an earlier process";
    job.now += later;
    job.handle(ConnectionClosed{member(1), "closed"});
    EXPECT_EQ(job.ended(member(0)).has_value(), later < seconds(3));
  }
}

TEST(Membership, ANewInstanceEndsTheWaitForTheOldOne) {
  Job job(1, 1, 1);
  job.join(member(0, 1));
  job.handle(ConnectionClosed{member(0, 1), "reset"});
  job.join(member(0, 2));
  EXPECT_EQ(job.all<MemberLost>().at(0).kind, LossKind::kReplaced);
  EXPECT_EQ(job.assigned(member(0, 2))->epoch, 2u);
}

TEST(Membership, ALostAssignmentIsSentAgainAfterAReconnect) {
  Job job = running_pair();
  const Assignment sent = *job.assigned(member(1));
  job.handle(ConnectionClosed{member(1), "reset"});
  job.join(member(1));
  EXPECT_EQ(job.assigned(member(1)), sent);
  EXPECT_TRUE(job.tick_after(seconds(3)).empty()) << "it has reconnected";
}

// The coordinator has restarted, and the assignment of one member was lost.
TEST(Membership, AMemberThatIsAssignedAgainIsOneOfTheLatestEpoch) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(0));
  job.restart(1);
  job.reconnect(member(0), held);
  job.join(member(1));
  ASSERT_EQ(job.assigned(member(1))->epoch, 1u);
  EXPECT_EQ(job.state.members.at(member(1).process).latest_epoch, 1u);
}

TEST(Membership, AMemberThatDiesBeforeTheStepBoundaryIsLostWhenTheOthersAreThere) {
  for (const bool died_first : {true, false}) {
    Job job = running_pair(3);
    job.join(member(2));
    ASSERT_EQ(job.state.phase, Phase::kDraining);
    if (died_first) job.handle(ConnectionClosed{member(1), "reset"});
    EXPECT_EQ(job.state.epoch(), 1u) << "no member has reached the boundary";
    job.join(member(0), 1);
    if (!died_first) job.handle(ConnectionClosed{member(1), "reset"});
    ASSERT_EQ(job.all<MemberLost>().size(), 1u);
    EXPECT_EQ(job.all<MemberLost>()[0].epoch, 1u);
    EXPECT_EQ(job.assigned(member(2))->epoch, 2u);
    EXPECT_EQ(job.assigned(member(2))->world, 2);
  }
}

TEST(Membership, AReconnectedMemberIsAskedAgainToReachTheStepBoundary) {
  Job job = running_pair(3);
  const Assignment held = *job.assigned(member(1));
  job.join(member(2));
  job.handle(ConnectionClosed{member(1), "reset"});
  job.reconnect(member(1), held);
  ASSERT_EQ(job.all<RequestReform>().size(), 1u);
  EXPECT_EQ(job.all<RequestReform>()[0].to, member(1));
}

// The earlier coordinator ended before the second member received its assignment.
TEST(Membership, SendsTheAssignmentOfAReportedEpochToAMemberThatWaits) {
  Job job(1, 2, 2);
  job.join(member(0));
  job.join(member(1));
  const Assignment held = *job.assigned(member(0));
  const Assignment missed = *job.assigned(member(1));
  job.restart(0);
  job.join(member(1));
  job.reconnect(member(0), held);
  EXPECT_EQ(job.assigned(member(1)), missed);
  EXPECT_FALSE(job.assigned(member(0)));
  EXPECT_EQ(job.state.phase, Phase::kRunning);
  EXPECT_EQ(job.state.members.at({1, 0}).state, MemberState::kInEpoch);
  EXPECT_EQ(job.state.members.at({1, 0}).last_rank, 1);
  EXPECT_EQ(job.state.members.at({1, 0}).latest_epoch, held.epoch);
}

TEST(Membership, WithoutAReconnectTimeoutABrokenConnectionEndsTheEpoch) {
  Job job(1, 2, 2);
  job.settings.reconnect_timeout = {};
  job.restart(0);
  job.join(member(0));
  job.join(member(1));
  job.handle(ConnectionClosed{member(1), "reset"});
  EXPECT_TRUE(job.ended(member(0)));
}

TEST(Membership, ALossReportsTheLastRank) {
  Job job(1, 3, 3);
  for (int i = 1; i < 4; ++i) job.join(member(i));
  job.lose(member(2));
  EXPECT_EQ(job.all<MemberLost>().at(0).rank, 1);
  job.handle(ConnectionClosed{member(3), "reset"});
  EXPECT_EQ(job.all<MemberLost>().at(0).epoch, 0u) << "the epoch had already ended";
  EXPECT_EQ(job.all<MemberLost>().at(0).rank, 2);
  job.join(member(4));
  job.handle(ConnectionClosed{member(4), "reset"});
  EXPECT_EQ(job.all<MemberLost>().at(0).rank, -1) << "it never had a rank";
  job.join(member(1, 2));
  EXPECT_EQ(job.all<MemberLost>().at(0).kind, LossKind::kReplaced);
  EXPECT_EQ(job.all<MemberLost>().at(0).rank, 0);
}

TEST(Membership, ALossAfterACoordinatorRestartReportsTheRank) {
  for (const bool reconnects : {true, false}) {
    Job job = running_pair();
    const Assignment held[] = {*job.assigned(member(0)), *job.assigned(member(1))};
    job.restart(1);
    job.reconnect(member(0), held[0]);
    if (reconnects) {
      job.reconnect(member(1), held[1]);
      job.lose(member(1));
    } else {
      job.now += seconds(9);
      job.handle(Heartbeat{member(0), 1, {}});
      job.tick_after(seconds(1));
    }
    ASSERT_EQ(job.all<MemberLost>().size(), 1u);
    EXPECT_EQ(job.all<MemberLost>()[0].who, member(1));
    EXPECT_EQ(job.all<MemberLost>()[0].rank, 1);
  }
}

TEST(Membership, MissedHeartbeatsEndTheEpoch) {
  Job job = running_pair();
  job.now += seconds(6);
  job.handle(Heartbeat{member(0), 1, {}});
  job.tick_after(milliseconds(3999));
  EXPECT_EQ(job.state.phase, Phase::kRunning);
  job.tick_after(milliseconds(1));
  ASSERT_EQ(job.all<MemberLost>().size(), 1u);
  EXPECT_EQ(job.all<MemberLost>()[0].kind, LossKind::kHeartbeatsMissed);
  EXPECT_EQ(job.all<CloseConnection>()[0].to, member(1));
  EXPECT_TRUE(job.ended(member(0)));
}

TEST(Membership, AStallOfTheCoordinatorMovesTheDeadlines) {
  Job job(1, 3, 3);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  const Assignment held = *job.assigned(member(1));
  job.now += seconds(1);
  job.handle(ConnectionClosed{member(1), "reset"});
  job.now += seconds(60);
  EXPECT_TRUE(job.handle(Stalled{seconds(60)}).empty());
  EXPECT_TRUE(job.handle(Tick{}).empty());
  EXPECT_TRUE(job.tick_after(milliseconds(2999)).empty());
  EXPECT_TRUE(job.reconnect(member(1), held).empty());
  job.handle(Heartbeat{member(2), 1, {}});
  EXPECT_TRUE(job.tick_after(milliseconds(6000)).empty());
  job.tick_after(milliseconds(1));
  ASSERT_EQ(job.all<MemberLost>().size(), 1u) << "10 s of silence while the coordinator ran";
  EXPECT_EQ(job.all<MemberLost>()[0].who, member(0));
}

TEST(Membership, WaitsForSurvivorsUntilTheRejoinTimeout) {
  Job job(1, 3, 3);
  job.settings.heartbeat_timeout = seconds(1000);
  job.restart(0);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  job.handle(ConnectionClosed{member(2), "reset"});
  job.join(member(0), 1);
  job.tick_after(seconds(29));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.tick_after(seconds(1));
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, ARejoinEndsTheEpochForTheOthers) {
  Job job = running_pair();
  job.join(member(0), 1);
  EXPECT_TRUE(job.ended(member(1)));
  EXPECT_FALSE(job.ended(member(0)));
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
}

TEST(Membership, ANewMemberJoinsAtAStepBoundary) {
  Job job = running_pair(3);
  job.join(member(2));
  EXPECT_EQ(job.all<RequestReform>().size(), 2u);
  EXPECT_TRUE(job.all<EndEpoch>().empty());
  job.tick_after(seconds(9));
  EXPECT_EQ(job.state.epoch(), 1u) << "a long step continues";
  job.join(member(0), 1);
  EXPECT_TRUE(job.last.empty()) << "the others reach the boundary by themselves";
  job.join(member(1), 1, "avx2", 40);
  EXPECT_TRUE(job.all<EndEpoch>().empty());
  const Assignment formed = *job.assigned(member(2));
  EXPECT_EQ(formed.world, 3);
  EXPECT_EQ(formed.epoch, 2u);
  EXPECT_EQ(formed.resume_step, 40);
}

// All members are gone, and their successors know no checkpoint.
TEST(Membership, RemembersTheJobsLastCheckpoint) {
  Job job(1, 1, 1);
  job.join(member(0));
  Progress progress;
  progress.last_checkpoint_step = 40;
  job.handle(Heartbeat{member(0), 1, progress});
  job.handle(ConnectionClosed{member(0), "reset"});
  job.join(member(0, 2));
  EXPECT_EQ(job.assigned(member(0, 2))->resume_step, 40);

  job.state = make_state(job.settings, {2, 60}, job.now);
  job.tick_after(job.settings.recovery_timeout);
  job.join(member(0, 3));
  EXPECT_EQ(job.assigned(member(0, 3))->resume_step, 60);
}

TEST(Membership, IgnoresTheCheckpointOfAMemberWhoseEpochHasEnded) {
  Job job = running_pair();
  Progress progress;
  progress.last_checkpoint_step = 40;
  job.join(member(0, 2));  // replaces the first process
  job.handle(Heartbeat{member(0), 1, progress});
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(1))->resume_step, -1);
}

TEST(Membership, AMemberMissingAtTheBoundaryTimesOut) {
  Job job(1, 3, 2);
  job.settings.heartbeat_timeout = seconds(1000);
  job.restart(0);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  job.join(member(0), 1);
  job.tick_after(seconds(29));
  EXPECT_EQ(job.state.epoch(), 1u);
  job.tick_after(seconds(1));
  EXPECT_TRUE(job.ended(member(1)));
}

// They have the state in memory; the replacement of the third gets it at a later step boundary.
TEST(Membership, SurvivorsDoNotWaitForAReplacement) {
  Job job(1, 3, 3);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  job.handle(Expect{1, 3, 3, seconds(30)});
  job.handle(ConnectionClosed{member(2), "reset"});
  job.join(member(0), 1);
  EXPECT_EQ(job.state.phase, Phase::kGathering) << "the other survivor has not joined again";
  job.join(member(1), 1);
  ASSERT_TRUE(job.assigned(member(0)));
  EXPECT_EQ(job.assigned(member(0))->world, 2);
  job.join({{2, 0}, 77});
  EXPECT_EQ(job.all<RequestReform>().size(), 2u);
  job.join(member(0), 2);
  job.join(member(1), 2);
  EXPECT_EQ(job.assigned({{2, 0}, 77})->world, 3);
}

// The survivor has the state; it notices the loss later than the others.
TEST(Membership, ASpareAndAReplacementDoNotTakeTheSurvivorsPlaces) {
  Job job = running_pair();
  job.join(member(2));  // a spare
  job.handle(WorkerExited{0, 0});
  job.handle(ConnectionClosed{member(0), "reset"});
  ASSERT_TRUE(job.ended(member(1)));
  job.join(member(0, 77));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.tick_after(seconds(5));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1), 1);
  ASSERT_TRUE(job.assigned(member(1)));
  EXPECT_EQ(job.assigned(member(1))->rank, 1);
  EXPECT_TRUE(job.assigned(member(0, 77)));
  EXPECT_FALSE(job.assigned(member(2)));
}

TEST(Membership, MembersOfTheLatestEpochPrecede) {
  Job job(1, 2, 2);
  job.join(member(2));
  job.join(member(3));
  job.join(member(0));
  job.join(member(1));
  job.handle(ConnectionClosed{member(3), "reset"});
  job.join(member(2), 1);
  ASSERT_TRUE(job.assigned(member(2)));
  EXPECT_EQ(job.assigned(member(2))->rank, 1);
  EXPECT_EQ(job.assigned(member(0))->rank, 0);
  EXPECT_FALSE(job.assigned(member(1)));
}

TEST(Membership, SurvivorsWaitForTheirMinimum) {
  Job job = running_pair();
  job.handle(ConnectionClosed{member(1), "reset"});
  job.handle(Expect{2, 2, 2, {}});
  job.join(member(0), 1);
  job.tick_after(seconds(9));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join({{1, 0}, 77});
  EXPECT_EQ(job.assigned(member(0))->world, 2);
}

TEST(Membership, AMemberBeyondTheMaximumWaitsAsASpare) {
  Job job = running_pair();
  EXPECT_TRUE(job.join(member(2)).empty());
  job.handle(ConnectionClosed{member(0), "reset"});
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(1))->rank, 0);
  EXPECT_EQ(job.assigned(member(2))->rank, 1);
}

TEST(Membership, AHigherMaximumAdmitsTheSpareAtAStepBoundary) {
  Job job = running_pair();
  job.join(member(2));
  job.handle(Expect{1, 3, 3, {}});
  EXPECT_EQ(job.all<RequestReform>().size(), 2u);
  job.join(member(0), 1);
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(2))->world, 3);
}

TEST(Membership, ALowerMinimumFormsAfterTheJoinQuietPeriod) {
  for (const Duration waited : {Duration(seconds(1)), Duration(seconds(9))}) {
    Job job(2, 4, 3);
    job.join(member(0));
    job.tick_after(waited);
    ASSERT_EQ(job.state.phase, Phase::kGathering);
    job.handle(Expect{1, 4, 3, {}});
    if (waited < seconds(3)) {
      EXPECT_EQ(job.state.phase, Phase::kGathering) << "the quiet period has not passed";
      EXPECT_EQ(next_deadline(job.state), job.now + seconds(2));
      job.tick_after(seconds(2));
    }
    ASSERT_TRUE(job.assigned(member(0)));
    EXPECT_EQ(job.assigned(member(0))->world, 1);
  }
}

TEST(Membership, AHigherMinimumAppliesToTheNextEpochOnly) {
  Job job(1, 3, 1);
  job.join(member(0));
  job.handle(Expect{2, 3, 2, {}});
  EXPECT_TRUE(job.last.empty());
  EXPECT_EQ(job.state.epoch(), 1u);
  job.join(member(0), 1);
  job.tick_after(seconds(8));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1));
  EXPECT_EQ(job.assigned(member(0))->world, 2);
}

TEST(Membership, ALowerMaximumAppliesToTheNextEpochOnly) {
  Job job(1, 3, 3);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  const Assignment held = *job.assigned(member(1));
  job.handle(Expect{1, 2, 2, {}});
  EXPECT_TRUE(job.last.empty());
  EXPECT_TRUE(job.reconnect(member(1), held).empty()) << "a new connection of a member";
  EXPECT_EQ(job.state.epoch_members.size(), 3u);
  job.join(member(0), 1);
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(0))->world, 2);
  EXPECT_TRUE(job.join(member(2), 1).empty()) << "it waits as a spare";
}

TEST(Membership, InvalidBoundsAreClamped) {
  Job job(1, 2, 2);
  job.handle(Expect{0, kMaxWorld + 1, 0, {}});
  EXPECT_EQ(job.state.settings.min_world, 1);
  EXPECT_EQ(job.state.settings.max_world, kMaxWorld);
  EXPECT_EQ(job.state.settings.expected, 1);
  job.handle(Expect{3, 2, 9, {}});
  EXPECT_TRUE(check(job.state.settings).ok());
  EXPECT_EQ(job.state.settings.max_world, 3);
}

TEST(Membership, ANewInstanceReplacesTheOldOneWhichIsFenced) {
  Job job = running_pair();
  job.join(member(1, 2));
  ASSERT_EQ(job.all<Refuse>().size(), 1u);
  EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
  EXPECT_EQ(job.all<MemberLost>()[0].kind, LossKind::kReplaced);
  EXPECT_TRUE(job.ended(member(0)));
  const State before = job.state;
  job.join(member(1, 1));
  EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
  job.handle(Heartbeat{member(1, 1), 1, {}});
  job.handle(ConnectionClosed{member(1, 1), "closed"});
  EXPECT_EQ(job.state, before);
}

// Its node was cut off: its worker was created elsewhere, then the network was back.
TEST(Membership, ALostProcessThatReturnsDoesNotReplaceItsReplacement) {
  for (const bool in_epoch : {false, true}) {
    Job job = running_pair();
    const Assignment held = *job.assigned(member(1, 1));
    job.lose(member(1, 1));
    ASSERT_EQ(job.all<MemberLost>().size(), 1u);
    job.join(member(1, 2));
    if (in_epoch) job.join(member(0), 1);
    ASSERT_EQ(job.state.phase == Phase::kRunning, in_epoch);
    for (const bool reconnects : {true, false}) {
      const State before = job.state;
      if (reconnects) {
        job.reconnect(member(1, 1), held);
      } else {
        job.join(member(1, 1), 1);
      }
      ASSERT_EQ(job.all<Refuse>().size(), 1u);
      EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
      EXPECT_TRUE(job.all<EndEpoch>().empty());
      EXPECT_EQ(job.state.members, before.members);
      EXPECT_EQ(job.state.epoch_members, before.epoch_members);
    }
  }
}

// After a restart of the coordinator, both are there.
TEST(Membership, TheProcessOfTheLaterEpochIsTheNewer) {
  for (const bool old_first : {true, false}) {
    Job job(1, 2, 2);
    job.restart(3);
    job.join(member(1, old_first ? 1 : 2), old_first ? 2 : 3);
    job.join(member(1, old_first ? 2 : 1), old_first ? 3 : 2);
    ASSERT_EQ(job.all<Refuse>().size(), 1u);
    EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
    ASSERT_TRUE(job.state.members.contains(member(1).process));
    EXPECT_EQ(job.state.members.at(member(1).process).who, member(1, 2));
  }
}

// Worker 1 was cut off and replaced in epoch 2. It returns while the coordinator restarts.
TEST(Membership, ALostProcessDoesNotReplaceItsReplacementAfterARestart) {
  const MemberId lost = member(1, 1), replacement = member(1, 2);
  for (const bool reconnects : {true, false}) {
    for (std::vector<MemberId> order = {member(0), lost, replacement};;) {
      Job job = running_pair();
      const Assignment old = *job.assigned(lost);
      job.lose(lost);
      job.join(replacement);
      job.join(member(0), 1);
      const std::vector<Assignment> held = {*job.assigned(member(0)), *job.assigned(replacement)};
      job.restart(0);
      bool refused = false, ended = false;
      for (const MemberId& who : order) {
        if (who != lost) {
          job.reconnect(who, held[static_cast<std::size_t>(who.process.worker_index)]);
        } else if (reconnects) {
          job.reconnect(who, old);
        } else {
          job.join(who, 1);
        }
        for (const Refuse& refuse : job.all<Refuse>()) {
          EXPECT_EQ(refuse.to, lost);
          refused = true;
        }
        ended = ended || job.ended(member(0)) || job.ended(replacement);
      }
      EXPECT_TRUE(refused);
      EXPECT_FALSE(ended);
      EXPECT_EQ(job.state.phase, Phase::kRunning);
      EXPECT_EQ(job.state.epoch(), 2u);
      if (!std::ranges::next_permutation(order).found) break;
    }
  }
}

TEST(Membership, StaleMessagesChangeNothing) {
  Job job = running_pair();
  job.join(member(0), 1);
  job.join(member(1), 1);
  ASSERT_EQ(job.state.epoch(), 2u);
  const State before = job.state;
  job.now += seconds(1);
  Progress progress;
  progress.step = 99;
  job.handle(Heartbeat{member(0), 1, progress});
  EXPECT_EQ(job.ended(member(0))->epoch, 1u);
  job.handle(Finished{member(0), 1});
  job.join(member(0), 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u) << "it has not seen its assignment yet";
  EXPECT_EQ(job.state, before);
}

// The member has not seen its assignment yet, or not the end of its epoch.
TEST(Membership, AMemberMayLeaveInAnyEpoch) {
  Job joining(1, 2, 2);
  joining.join(member(0));
  joining.join(member(1));
  ASSERT_TRUE(joining.assigned(member(1)));
  joining.handle(Leave{member(1), "stopped"});
  ASSERT_EQ(joining.all<MemberLost>().size(), 1u);
  EXPECT_EQ(joining.all<MemberLost>()[0].kind, LossKind::kLeft);
  EXPECT_EQ(joining.all<MemberLost>()[0].epoch, 1u);
  EXPECT_EQ(joining.ended(member(0))->epoch, 1u);
  joining.join(member(0), 1);
  EXPECT_EQ(joining.assigned(member(0))->world, 1);

  Job ended(1, 3, 3);
  for (int i = 0; i < 3; ++i) ended.join(member(i));
  ended.lose(member(2));
  ended.handle(Leave{member(1), "stopped"});
  EXPECT_FALSE(ended.state.members.contains(member(1).process));
  ended.join(member(0), 1);
  EXPECT_EQ(ended.assigned(member(0))->world, 1) << "no wait for the one that has left";
}

// The earlier coordinator stopped before the assignment reached the member, which still has the one
// before.
TEST(Membership, AMemberMayLeaveAnEpochThatIsBeingRebuilt) {
  Job job = running_pair();
  const Assignment before = *job.assigned(member(1));
  job.join(member(0), 1);
  job.join(member(1), 1);
  const Assignment held = *job.assigned(member(0));
  job.restart(1);
  job.reconnect(member(1), before);
  job.reconnect(member(0), held);
  ASSERT_EQ(job.state.phase, Phase::kRebuilding);
  job.handle(Leave{member(1), "stopped"});
  ASSERT_TRUE(job.ended(member(0)));
  EXPECT_EQ(job.ended(member(0))->reason, "worker 1 left: stopped");
  job.join(member(0), 2);
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, ALeaveOfAnEarlierInstanceOrConnectionChangesNothing) {
  Job job(1, 2, 2);
  job.join(member(0));
  job.join(member(1, 1));
  job.join(member(1, 2));
  job.join(member(0), 1);
  ASSERT_EQ(job.state.epoch(), 2u);
  State before = job.state;
  EXPECT_TRUE(job.handle(Leave{member(1, 1), "late"}).empty());
  EXPECT_EQ(job.state, before);
  job.handle(ConnectionClosed{member(1, 2), "reset"});
  before = job.state;
  EXPECT_TRUE(job.handle(Leave{member(1, 2), "late"}).empty());
  EXPECT_EQ(job.state, before);
}

TEST(Membership, RejectsAMismatchedInstructionSet) {
  Job job(1, 2, 2);
  job.join(member(0), 0, "amx");
  job.join(member(1), 0, "avx2");
  ASSERT_EQ(job.all<Refuse>().size(), 1u);
  EXPECT_THAT(job.all<Refuse>()[0].message,
              HasSubstr("worker 1 can use the instruction sets avx2, the other workers of the job "
                        "amx"));
  EXPECT_FALSE(job.state.members.contains(WorkerProcess{1, 0}));
}

TEST(Membership, TheJobClosesAfterRankZeroFinishes) {
  Job job = running_pair();
  job.handle(Finished{member(0), 1});
  EXPECT_EQ(job.all<Acknowledge>().size(), 1u);
  job.handle(ConnectionClosed{member(0), "closed"});
  EXPECT_TRUE(job.last.empty()) << "a finished process that exits is not a loss";
  EXPECT_EQ(job.state.phase, Phase::kClosing);
  job.join(member(4));
  EXPECT_TRUE(job.all<Refuse>()[0].job_finished);
  job.handle(Finished{member(1), 1});
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, AStragglersEpochEndsAfterTheCloseTimeout) {
  Job job = running_pair();
  job.handle(Finished{member(0), 1});
  for (int i = 0; i < 6; ++i) {
    job.tick_after(seconds(5));
    if (i < 5) job.handle(Heartbeat{member(1), 1, {}});
  }
  ASSERT_TRUE(job.ended(member(1)));
  EXPECT_TRUE(job.ended(member(1))->job_finished);
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, RankZeroMayFinishLast) {
  Job job = running_pair();
  job.handle(Finished{member(1), 1});
  job.handle(ConnectionClosed{member(1), "closed"});
  EXPECT_EQ(job.state.epoch(), 1u);
  job.handle(Finished{member(0), 1});
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, ARestartedCoordinatorRecoversTheRunningEpoch) {
  Job job(1, 3, 3);
  std::vector<Assignment> held;
  held.reserve(3);
  for (int i = 0; i < 3; ++i) job.join(member(i), 0, "avx2", 7);
  for (int i = 0; i < 3; ++i) held.push_back(*job.assigned(member(i)));
  const State before = job.state;
  for (const Epoch last_epoch : {Epoch{0}, Epoch{1}}) {
    job.restart(last_epoch);
    EXPECT_TRUE(job.reconnect(member(2), held[2]).empty());
    EXPECT_EQ(job.state.phase, Phase::kRebuilding);
    EXPECT_TRUE(job.reconnect(member(0), held[0]).empty());
    EXPECT_TRUE(job.reconnect(member(1), held[1]).empty());
    EXPECT_EQ(job.state.phase, Phase::kRunning);
    EXPECT_EQ(job.state.epoch_members, before.epoch_members);
    EXPECT_EQ(full_assignment(job.state, 1), held[1]);
  }
}

TEST(Membership, AMemberMissingAfterACoordinatorRestartIsLost) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(0));
  job.restart(1);
  job.reconnect(member(0), held);
  job.now += seconds(9);
  job.handle(Heartbeat{member(0), 1, {}});
  job.tick_after(seconds(1));
  EXPECT_TRUE(job.ended(member(0)));
  EXPECT_EQ(job.all<MemberLost>()[0].who, member(1));
}

TEST(Membership, ADeathDuringACoordinatorRestartIsDetected) {
  for (const bool successor_first : {true, false}) {
    Job job = running_pair();
    const Assignment held = *job.assigned(member(0));
    job.restart(1);
    if (successor_first) {
      job.join(member(1, 2));
      EXPECT_TRUE(job.all<Assign>().empty());
      job.reconnect(member(0), held);
    } else {
      job.reconnect(member(0), held);
      job.join(member(1, 2));
    }
    EXPECT_TRUE(job.ended(member(0)));
    job.join(member(0), 1);
    EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
    EXPECT_EQ(job.assigned(member(1, 2))->rank, 1);
  }
}

TEST(Membership, NewMembersWaitForTheRecoveryTimeoutAfterARestart) {
  Job job(1, 3, 3, 5);
  job.join(member(2));
  job.tick_after(seconds(9));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.handle(Heartbeat{member(2), 0, {}});
  job.tick_after(seconds(1));
  EXPECT_EQ(job.assigned(member(2))->epoch, 6u);
}

TEST(Membership, EpochNumbersExceedAnySeenBefore) {
  Job job(1, 2, 2);
  job.join(member(0), 41);
  job.join(member(1));
  EXPECT_EQ(job.assigned(member(0))->epoch, 42u);
}

// An epoch above kMaxEpoch cannot be sent, so such a report must not raise the numbers.
TEST(Membership, AReportOfAnImpossibleEpochIsRefusedAndChangesNothing) {
  for (const Epoch last_epoch : {Epoch{0}, Epoch{7}}) {
    Job job(1, 2, 2, last_epoch);
    const Epoch first = last_epoch + kMaxUnstoredEpochs + 1;
    for (const Epoch reported : {first, Epoch{1} << 47, kMaxEpoch}) {
      const State before = job.state;
      job.join(member(0), reported);
      ASSERT_EQ(job.all<Refuse>().size(), 1u);
      EXPECT_THAT(job.all<Refuse>()[0].message,
                  HasSubstr("worker 0 reports epoch " + std::to_string(reported) +
                            ", expected at most " + std::to_string(first - 1)));
      job.reconnect(member(0), {reported, 0, 1, 0, 1, -1, {{member(0), "a:1"}}});
      EXPECT_EQ(job.all<Refuse>().size(), 1u);
      EXPECT_EQ(job.state, before);
    }
    job.join(member(0));
    job.now += seconds(9);
    job.handle(Heartbeat{member(0), 0, {}});
    job.tick_after(seconds(1));
    EXPECT_EQ(job.assigned(member(0))->epoch, last_epoch + 1);
  }
}

TEST(Membership, AMemberRaisesTheNumbersOnlyOnce) {
  Job job(1, 1, 1, 7);
  job.join(member(0), 7 + kMaxUnstoredEpochs);
  ASSERT_EQ(job.assigned(member(0))->epoch, 8 + kMaxUnstoredEpochs) << "not stored before a crash";
  const Assignment held = *job.assigned(member(0));
  job.join(member(0), held.epoch + 1);
  EXPECT_THAT(job.all<Refuse>().at(0).message, HasSubstr("the job cannot have reached it"));
  EXPECT_TRUE(job.reconnect(member(0), held).empty()) << "an assigned number is possible";
}

TEST(Membership, AReconnectToAnEndedEpochIsRejected) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(1));
  job.lose(member(1));
  job.reconnect(member(1), held);
  EXPECT_EQ(job.ended(member(1))->epoch, 1u);
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1), 1);
  job.join(member(0), 1);
  EXPECT_EQ(job.assigned(member(1))->epoch, 2u);
}

TEST(Membership, AReconnectDoesNotEndTheEpoch) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(1));
  EXPECT_TRUE(job.reconnect(member(1), held).empty());
  EXPECT_EQ(job.state.epoch(), 1u);
}

TEST(Membership, ConflictingAssignmentsEndTheEpoch) {
  Job job = running_pair();
  Assignment other = *job.assigned(member(1));
  other.peers[0].address = "10.9.9.9:1";
  job.reconnect(member(1), other);
  EXPECT_TRUE(job.ended(member(0)));
  EXPECT_TRUE(job.ended(member(1)));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
}

TEST(Membership, TheRecoveredEpochDefinesTheInstructionSet) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(0));
  job.restart(0);
  job.join(member(5), 0, "amx");
  job.reconnect(member(0), held);
  EXPECT_TRUE(lacks_isa(job.state, job.state.members.at({5, 0})));
  EXPECT_EQ(job.state.isa, "avx2");
  EXPECT_EQ(job.state.phase, Phase::kRebuilding);
}

TEST(Membership, InvalidSettingsAreNamed) {
  Settings settings;
  settings.min_world = 3;
  settings.max_world = 2;
  EXPECT_THAT(check(settings).error().message, HasSubstr("max_world is 2"));
  settings.max_world = 4;
  EXPECT_THAT(check(settings).error().message, HasSubstr("expected is 1"));
}

TEST(InstructionSet, IsTheFastestThatTheFirstMembersHaveInCommon) {
  Job job(2, 2, 2);
  job.join_with(member(0), {"ref", "avx2", "amx"});
  job.join_with(member(1), {"ref", "avx2", "avx512"});
  EXPECT_EQ(job.assigned(member(0))->isa, "avx2");
  EXPECT_EQ(job.assigned(member(1))->isa, "avx2");
}

TEST(InstructionSet, StaysTheSameInAnExactJob) {
  Job job(1, 2, 1);
  job.join_with(member(0), {"avx2", "amx"});
  EXPECT_EQ(job.assigned(member(0))->isa, "amx");
  job.join_with(member(1), {"avx2"});
  EXPECT_TRUE(job.last.empty()) << "the epoch continues";
  EXPECT_TRUE(lacks_isa(job.state, job.state.members.at({1, 0})));
  // Without the only member that has it, the job waits.
  job.lose(member(0));
  for (int i = 0; i < 10; ++i) {
    job.tick_after(seconds(5));
    job.handle(Heartbeat{member(1), 0, {}});
  }
  EXPECT_FALSE(job.state.current());
  job.join_with(member(0, 2), {"avx2", "amx"});
  ASSERT_TRUE(job.assigned(member(0, 2)));
  EXPECT_EQ(job.assigned(member(0, 2))->isa, "amx");
  EXPECT_EQ(job.assigned(member(0, 2))->world, 1);
}

TEST(InstructionSet, ChangesWithTheMembersOfAnInexactJob) {
  Job job(1, 2, 1);
  job.settings.exact = false;
  job.restart(0);
  job.join_with(member(0), {"avx2", "amx"});
  EXPECT_EQ(job.assigned(member(0))->isa, "amx");
  job.join_with(member(1), {"avx2"});
  EXPECT_EQ(job.all<RequestReform>().size(), 1U);
  job.join_with(member(0), {"avx2", "amx"}, 1);
  EXPECT_EQ(job.assigned(member(0))->isa, "avx2");
  EXPECT_EQ(job.assigned(member(0))->world, 2);
}

TEST(InstructionSet, OfAMemberDoesNotChangeWhenItReconnects) {
  Job job(1, 1, 1);
  job.join_with(member(0), {"amx"});
  ASSERT_TRUE(job.assigned(member(0)));
  job.handle(ConnectionClosed{member(0), "reset"});
  const State before = job.state;
  job.join_with(member(0), {"avx2"});  // it has not received its assignment
  EXPECT_FALSE(job.assigned(member(0)));
  const auto refused = job.all<Refuse>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].message,
            "worker 0 can use the instruction sets avx2, but its membership epoch uses amx");
  EXPECT_TRUE(job.state == before);
  job.join_with(member(0), {"avx2", "amx"});
  EXPECT_TRUE(job.assigned(member(0)));
}

TEST(InstructionSet, OfARestartedCoordinatorIsTheStoredOne) {
  Job job(1, 1, 1);
  job.restart(5, "avx2");
  job.join_with(member(0), {"avx2", "amx"}, 5);
  ASSERT_TRUE(job.assigned(member(0)));
  EXPECT_EQ(job.assigned(member(0))->isa, "avx2");
}

TEST(InstructionSet, OfARestartedCoordinatorIsThatOfTheRunningEpoch) {
  Job job = running_pair(3);
  const Assignment held = full_assignment(job.state, 0), other = full_assignment(job.state, 1);
  job.restart(1);
  job.join_with(member(2), {"avx2", "amx"});
  job.reconnect(member(0), held);
  job.reconnect(member(1), other);
  EXPECT_EQ(job.state.phase, Phase::kDraining) << "the new member has the instruction set, too";
  EXPECT_EQ(job.state.isa, "avx2");
}

// Members without a common instruction set can meet after the coordinator has restarted.
TEST(InstructionSet, OfAReconnectingMemberNeedNotBeThatOfWaitingOnes) {
  Job job(1, 1, 1);
  job.settings.exact = false;
  job.restart(0);
  job.join(member(0), 0, "avx2");
  const Assignment held{2, 0, 1, 0, 1, -1, {{member(1), Job::address(member(1))}}, "amx"};
  const Join reconnected{member(1), Job::address(member(1)), {"amx"}, -1, 0, held};
  job.handle(reconnected);
  ASSERT_EQ(job.state.epoch(), 2u);
  ASSERT_EQ(job.state.phase, Phase::kRunning);
  ASSERT_TRUE(job.state.members.contains({0, 0}));
  job.handle(ConnectionClosed{member(1), "reset"});
  job.handle(reconnected);
  EXPECT_TRUE(job.all<Refuse>().empty());
  EXPECT_FALSE(job.state.members.at({1, 0}).disconnected);
}

}  // namespace
}  // namespace tilewright::rendezvous
