// Scripted histories of one job's membership.
#include "common/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

MemberId member(int index, std::uint64_t incarnation = 1, int slot = 0) {
  return {{index, slot}, incarnation};
}

// Drives one State with a clock of its own and keeps the last step's actions.
class Job {
 public:
  explicit Job(int min, int max, int expected, Epoch floor = 0) {
    settings.min_world = min;
    settings.max_world = max;
    settings.expected = expected;
    state = make_state(settings, floor, now);
  }
  // A restarted coordinator: nothing but the settings is left.
  void restart(Epoch floor) { state = make_state(settings, floor, now); }

  const Actions& does(const Event& event) { return last = step(state, event, now); }
  const Actions& join(MemberId who, Epoch after = 0, const std::string& isa = "avx2",
                      std::int64_t checkpoint = -1) {
    return does(Join{who, address(who), isa, checkpoint, after, {}});
  }
  const Actions& claim(MemberId who, const Assignment& held) {
    return does(Join{who, address(who), "avx2", -1, 0, held});
  }
  const Actions& tick_after(Duration duration) {
    now += duration;
    return does(Tick{});
  }
  static std::string address(const MemberId& who) {
    return "10.0.0." + std::to_string(who.seat.index) + ":29500";
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
      if (assign.to == who) return assign.assignment;
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

TEST(Membership, FormsAtOnceWhenTheExpectedMembersHaveJoined) {
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

TEST(Membership, RanksFollowIndexThenSlotAndLocalRanksHaveNoGaps) {
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

TEST(Membership, WithFewerThanExpectedTheLastCallIsAwaited) {
  Job job(1, 2, 2);
  job.join(member(0));
  EXPECT_EQ(next_deadline(job.state), job.now + seconds(3));
  EXPECT_TRUE(job.tick_after(milliseconds(2999)).empty());
  job.tick_after(milliseconds(1));
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, EveryJoinBeginsTheLastCallAnewButARepeatedOneDoesNot) {
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

TEST(Membership, TheOwnerCanMakeItWaitForAWorkerThatIsBeingRestarted) {
  Job job = running_pair();
  job.does(ConnectionClosed{member(1), "reset"});
  job.does(Expect{1, 2, 2, seconds(8)});
  job.join(member(0), 1);
  job.tick_after(seconds(7));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.tick_after(seconds(1));
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, AClosedConnectionBreaksTheEpochForAll) {
  Job job = running_pair();
  job.does(ConnectionClosed{member(1), "connection reset"});
  ASSERT_TRUE(job.ended(member(0)));
  EXPECT_EQ(job.ended(member(0))->epoch, 1u);
  EXPECT_THAT(job.ended(member(0))->reason, HasSubstr("worker 1"));
  ASSERT_EQ(job.all<Lost>().size(), 1u);
  EXPECT_EQ(job.all<Lost>()[0].who, member(1));
  EXPECT_EQ(job.all<Lost>()[0].epoch, 1u);
  job.join(member(0), 1);
  job.join(member(1, 2));
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
  EXPECT_EQ(job.assigned(member(1, 2))->epoch, 2u);
}

TEST(Membership, ALossSaysTheRankThatTheMemberHadLast) {
  Job job(1, 3, 3);
  for (int i = 1; i < 4; ++i) job.join(member(i));
  job.does(ConnectionClosed{member(2), "reset"});
  EXPECT_EQ(job.all<Lost>().at(0).rank, 1);
  job.does(ConnectionClosed{member(3), "reset"});
  EXPECT_EQ(job.all<Lost>().at(0).epoch, 0u) << "the epoch was over by then";
  EXPECT_EQ(job.all<Lost>().at(0).rank, 2);
  job.join(member(4));
  job.does(ConnectionClosed{member(4), "reset"});
  EXPECT_EQ(job.all<Lost>().at(0).rank, -1) << "it never had one";
  job.join(member(1, 2));
  EXPECT_EQ(job.all<Lost>().at(0).kind, LossKind::kReplaced);
  EXPECT_EQ(job.all<Lost>().at(0).rank, 0);
}

TEST(Membership, ALossAfterARestartOfTheCoordinatorSaysTheRankToo) {
  for (const bool came_back : {true, false}) {
    Job job = running_pair();
    const Assignment held[] = {*job.assigned(member(0)), *job.assigned(member(1))};
    job.restart(1);
    job.claim(member(0), held[0]);
    if (came_back) {
      job.claim(member(1), held[1]);
      job.does(ConnectionClosed{member(1), "reset"});
    } else {
      job.now += seconds(9);
      job.does(Heartbeat{member(0), 1, {}});
      job.tick_after(seconds(1));
    }
    ASSERT_EQ(job.all<Lost>().size(), 1u);
    EXPECT_EQ(job.all<Lost>()[0].who, member(1));
    EXPECT_EQ(job.all<Lost>()[0].rank, 1);
  }
}

TEST(Membership, MissedHeartbeatsBreakTheEpoch) {
  Job job = running_pair();
  job.now += seconds(6);
  job.does(Heartbeat{member(0), 1, {}});
  job.tick_after(milliseconds(3999));
  EXPECT_EQ(job.state.phase, Phase::kRunning);
  job.tick_after(milliseconds(1));
  ASSERT_EQ(job.all<Lost>().size(), 1u);
  EXPECT_EQ(job.all<Lost>()[0].kind, LossKind::kHeartbeatsMissed);
  EXPECT_EQ(job.all<Drop>()[0].to, member(1));
  EXPECT_TRUE(job.ended(member(0)));
}

TEST(Membership, WaitsForSurvivorsThatHaveNotComeBackYetButNotForEver) {
  Job job(1, 3, 3);
  job.settings.heartbeat_timeout = seconds(1000);
  job.restart(0);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  job.does(ConnectionClosed{member(2), "reset"});
  job.join(member(0), 1);
  job.tick_after(seconds(29));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.tick_after(seconds(1));
  EXPECT_EQ(job.assigned(member(0))->world, 1);
}

TEST(Membership, AMemberThatGivesUpItsEpochEndsItForTheOthers) {
  Job job = running_pair();
  job.join(member(0), 1);
  EXPECT_TRUE(job.ended(member(1)));
  EXPECT_FALSE(job.ended(member(0)));
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
}

TEST(Membership, ANewcomerIsTakenInAtAStepBoundary) {
  Job job = running_pair(3);
  job.join(member(2));
  EXPECT_EQ(job.all<AskReform>().size(), 2u);
  EXPECT_TRUE(job.all<EndEpoch>().empty());
  job.tick_after(seconds(9));
  EXPECT_EQ(job.state.epoch(), 1u) << "a long step is not disturbed";
  job.join(member(0), 1);
  EXPECT_TRUE(job.last.empty()) << "the others come to the boundary by themselves";
  job.join(member(1), 1, "avx2", 40);
  EXPECT_TRUE(job.all<EndEpoch>().empty());
  const Assignment formed = *job.assigned(member(2));
  EXPECT_EQ(formed.world, 3);
  EXPECT_EQ(formed.epoch, 2u);
  EXPECT_EQ(formed.resume_step, 40);
}

TEST(Membership, AMemberThatStaysBehindAtTheBoundaryIsNotAwaitedForEver) {
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

TEST(Membership, ANewcomerBeyondTheMaximumWaitsAsASpare) {
  Job job = running_pair();
  EXPECT_TRUE(job.join(member(2)).empty());
  job.does(ConnectionClosed{member(0), "reset"});
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(1))->rank, 0);
  EXPECT_EQ(job.assigned(member(2))->rank, 1);
}

TEST(Membership, AHigherMaximumTakesTheSpareInAtAStepBoundary) {
  Job job = running_pair();
  job.join(member(2));
  job.does(Expect{1, 3, 3, {}});
  EXPECT_EQ(job.all<AskReform>().size(), 2u);
  job.join(member(0), 1);
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(2))->world, 3);
}

TEST(Membership, ALowerMinimumLetsFewerFormAsSoonAsTheLastCallIsOver) {
  for (const Duration waited : {Duration(seconds(1)), Duration(seconds(9))}) {
    Job job(2, 4, 3);
    job.join(member(0));
    job.tick_after(waited);
    ASSERT_EQ(job.state.phase, Phase::kGathering);
    job.does(Expect{1, 4, 3, {}});
    if (waited < seconds(3)) {
      EXPECT_EQ(job.state.phase, Phase::kGathering) << "the last call is not over";
      EXPECT_EQ(next_deadline(job.state), job.now + seconds(2));
      job.tick_after(seconds(2));
    }
    ASSERT_TRUE(job.assigned(member(0)));
    EXPECT_EQ(job.assigned(member(0))->world, 1);
  }
}

TEST(Membership, AHigherMinimumHoldsBackTheNextEpochAndNotTheRunningOne) {
  Job job(1, 3, 1);
  job.join(member(0));
  job.does(Expect{2, 3, 2, {}});
  EXPECT_TRUE(job.last.empty());
  EXPECT_EQ(job.state.epoch(), 1u);
  job.join(member(0), 1);
  job.tick_after(seconds(8));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1));
  EXPECT_EQ(job.assigned(member(0))->world, 2);
}

TEST(Membership, ALowerMaximumLeavesTheRunningEpochAloneAndBoundsTheNext) {
  Job job(1, 3, 3);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  const Assignment held = *job.assigned(member(1));
  job.does(Expect{1, 2, 2, {}});
  EXPECT_TRUE(job.last.empty());
  EXPECT_TRUE(job.claim(member(1), held).empty()) << "a new connection of a member";
  EXPECT_EQ(job.state.roster.size(), 3u);
  job.join(member(0), 1);
  job.join(member(1), 1);
  EXPECT_EQ(job.assigned(member(0))->world, 2);
  EXPECT_TRUE(job.join(member(2), 1).empty()) << "it waits as a spare";
}

TEST(Membership, BoundsThatNoJobCanHaveAreDrawnToTheNearestOnes) {
  Job job(1, 2, 2);
  job.does(Expect{0, kMaxWorld + 1, 0, {}});
  EXPECT_EQ(job.state.settings.min_world, 1);
  EXPECT_EQ(job.state.settings.max_world, kMaxWorld);
  EXPECT_EQ(job.state.settings.expected, 1);
  job.does(Expect{3, 2, 9, {}});
  EXPECT_TRUE(check(job.state.settings).ok());
  EXPECT_EQ(job.state.settings.max_world, 3);
}

TEST(Membership, WithGrowthAtTheNextEpochNobodyIsAsked) {
  Job job(1, 3, 2);
  job.settings.growth = Growth::kAtNextEpoch;
  job.restart(0);
  for (int i = 0; i < 3; ++i) job.join(member(i));
  EXPECT_EQ(job.state.phase, Phase::kRunning);
  EXPECT_TRUE(job.last.empty());
}

TEST(Membership, ANewIncarnationTakesTheSeatAndTheOldOneIsFenced) {
  Job job = running_pair();
  job.join(member(1, 2));
  ASSERT_EQ(job.all<Refuse>().size(), 1u);
  EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
  EXPECT_EQ(job.all<Lost>()[0].kind, LossKind::kReplaced);
  EXPECT_TRUE(job.ended(member(0)));
  const State before = job.state;
  job.join(member(1, 1));
  EXPECT_EQ(job.all<Refuse>()[0].to, member(1, 1));
  job.does(Heartbeat{member(1, 1), 1, {}});
  job.does(ConnectionClosed{member(1, 1), "closed"});
  EXPECT_EQ(job.state, before);
}

TEST(Membership, MessagesOfAnOldEpochChangeNothing) {
  Job job = running_pair();
  job.join(member(0), 1);
  job.join(member(1), 1);
  ASSERT_EQ(job.state.epoch(), 2u);
  const State before = job.state;
  job.now += seconds(1);
  Progress progress;
  progress.step = 99;
  job.does(Heartbeat{member(0), 1, progress});
  EXPECT_EQ(job.ended(member(0))->epoch, 1u);
  job.does(Finished{member(0), 1});
  job.does(Leave{member(0), 1, "old"});
  job.join(member(0), 1);
  EXPECT_EQ(job.assigned(member(0))->epoch, 2u) << "it has not seen its assignment yet";
  EXPECT_EQ(job.state, before);
}

TEST(Membership, AnotherInstructionSetIsRefusedWithASentence) {
  Job job(1, 2, 2);
  job.join(member(0), 0, "amx");
  job.join(member(1), 0, "avx2");
  ASSERT_EQ(job.all<Refuse>().size(), 1u);
  EXPECT_THAT(job.all<Refuse>()[0].sentence, HasSubstr("worker 1 computes with the instruction set"
                                                       " avx2, the job with amx (worker 0)"));
  EXPECT_FALSE(job.state.members.contains(Seat{1, 0}));
}

TEST(Membership, TheJobClosesInOrderAfterRankZero) {
  Job job = running_pair();
  job.does(Finished{member(0), 1});
  EXPECT_EQ(job.all<Acknowledge>().size(), 1u);
  job.does(ConnectionClosed{member(0), "closed"});
  EXPECT_TRUE(job.last.empty()) << "a finished process ends, that is no loss";
  EXPECT_EQ(job.state.phase, Phase::kClosing);
  job.join(member(4));
  EXPECT_TRUE(job.all<Refuse>()[0].job_finished);
  job.does(Finished{member(1), 1});
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, AStragglerIsEndedWhenTheJobHasFinished) {
  Job job = running_pair();
  job.does(Finished{member(0), 1});
  for (int i = 0; i < 6; ++i) {
    job.tick_after(seconds(5));
    if (i < 5) job.does(Heartbeat{member(1), 1, {}});
  }
  ASSERT_TRUE(job.ended(member(1)));
  EXPECT_TRUE(job.ended(member(1))->job_finished);
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, RankZeroMayGoOnAloneAfterTheOthersHaveFinished) {
  Job job = running_pair();
  job.does(Finished{member(1), 1});
  job.does(ConnectionClosed{member(1), "closed"});
  EXPECT_EQ(job.state.epoch(), 1u);
  job.does(Finished{member(0), 1});
  EXPECT_EQ(job.state.phase, Phase::kClosed);
}

TEST(Membership, ARestartedCoordinatorTakesUpTheRunningEpoch) {
  Job job(1, 3, 3);
  std::vector<Assignment> held;
  for (int i = 0; i < 3; ++i) job.join(member(i), 0, "avx2", 7);
  for (int i = 0; i < 3; ++i) held.push_back(*job.assigned(member(i)));
  const State before = job.state;
  for (const Epoch floor : {Epoch{0}, Epoch{1}}) {
    job.restart(floor);
    EXPECT_TRUE(job.claim(member(2), held[2]).empty());
    EXPECT_EQ(job.state.phase, Phase::kRebuilding);
    EXPECT_TRUE(job.claim(member(0), held[0]).empty());
    EXPECT_TRUE(job.claim(member(1), held[1]).empty());
    EXPECT_EQ(job.state.phase, Phase::kRunning);
    EXPECT_EQ(job.state.roster, before.roster);
    EXPECT_EQ(assignment_of(job.state, 1), held[1]);
  }
}

TEST(Membership, AMemberThatDoesNotComeBackAfterTheRestartIsLost) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(0));
  job.restart(1);
  job.claim(member(0), held);
  job.now += seconds(9);
  job.does(Heartbeat{member(0), 1, {}});
  job.tick_after(seconds(1));
  EXPECT_TRUE(job.ended(member(0)));
  EXPECT_EQ(job.all<Lost>()[0].who, member(1));
}

TEST(Membership, AProcessThatDiedWhileTheCoordinatorWasAwayIsNoticedByItsSuccessor) {
  for (const bool successor_first : {true, false}) {
    Job job = running_pair();
    const Assignment held = *job.assigned(member(0));
    job.restart(1);
    if (successor_first) {
      job.join(member(1, 2));
      EXPECT_TRUE(job.all<Assign>().empty());
      job.claim(member(0), held);
    } else {
      job.claim(member(0), held);
      job.join(member(1, 2));
    }
    EXPECT_TRUE(job.ended(member(0)));
    job.join(member(0), 1);
    EXPECT_EQ(job.assigned(member(0))->epoch, 2u);
    EXPECT_EQ(job.assigned(member(1, 2))->rank, 1);
  }
}

TEST(Membership, AfterARestartFreshMembersAreNotPutIntoAnEpochBeforeTheOldOnesHadTime) {
  Job job(1, 3, 3, 5);
  job.join(member(2));
  job.tick_after(seconds(9));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.does(Heartbeat{member(2), 0, {}});
  job.tick_after(seconds(1));
  EXPECT_EQ(job.assigned(member(2))->epoch, 6u);
}

TEST(Membership, EpochNumbersGoOnAboveWhateverWasSeen) {
  Job job(1, 2, 2);
  job.join(member(0), 41);
  job.join(member(1));
  EXPECT_EQ(job.assigned(member(0))->epoch, 42u);
}

TEST(Membership, AClaimOfAnEpochThatIsOverIsTurnedOut) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(1));
  job.does(ConnectionClosed{member(1), "network"});
  job.claim(member(1), held);
  EXPECT_EQ(job.ended(member(1))->epoch, 1u);
  EXPECT_EQ(job.state.phase, Phase::kGathering);
  job.join(member(1), 1);
  job.join(member(0), 1);
  EXPECT_EQ(job.assigned(member(1))->epoch, 2u);
}

TEST(Membership, ANewConnectionOfAMemberDoesNotDisturbItsEpoch) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(1));
  EXPECT_TRUE(job.claim(member(1), held).empty());
  EXPECT_EQ(job.state.epoch(), 1u);
}

TEST(Membership, TwoIdeasOfOneEpochEndIt) {
  Job job = running_pair();
  Assignment other = *job.assigned(member(1));
  other.peers[0].address = "10.9.9.9:1";
  job.claim(member(1), other);
  EXPECT_TRUE(job.ended(member(0)));
  EXPECT_TRUE(job.ended(member(1)));
  EXPECT_EQ(job.state.phase, Phase::kGathering);
}

TEST(Membership, TheEpochDecidesOnTheInstructionSetAfterARestart) {
  Job job = running_pair();
  const Assignment held = *job.assigned(member(0));
  job.restart(0);
  job.join(member(5), 0, "amx");
  job.claim(member(0), held);
  ASSERT_EQ(job.all<Refuse>().size(), 1u);
  EXPECT_EQ(job.all<Refuse>()[0].to, member(5));
  EXPECT_EQ(job.state.phase, Phase::kRebuilding);
}

TEST(Membership, SettingsOutOfBoundsAreNamed) {
  Settings settings;
  settings.min_world = 3;
  settings.max_world = 2;
  EXPECT_THAT(check(settings).error().message, HasSubstr("max_world is 2"));
  settings.max_world = 4;
  EXPECT_THAT(check(settings).error().message, HasSubstr("expected is 1"));
}

}  // namespace
}  // namespace tilewright::rendezvous
