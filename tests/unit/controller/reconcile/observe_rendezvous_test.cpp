#include "controller/reconcile/observe_rendezvous.h"

#include <gtest/gtest.h>

#include <limits>

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;

constexpr WallTime kNow{seconds(1767225600)};

rendezvous::MemberView member(int index, int slot, int rank, rendezvous::Standing standing) {
  rendezvous::MemberView view;
  view.who.seat = {index, slot};
  view.rank = rank;
  view.standing = standing;
  return view;
}

rendezvous::Snapshot running() {
  rendezvous::Snapshot snapshot;
  snapshot.phase = rendezvous::Phase::kRunning;
  snapshot.epoch = snapshot.latest = 3;
  snapshot.world = 4;
  snapshot.members = {member(0, 0, 1, rendezvous::Standing::kInEpoch),
                      member(0, 1, 0, rendezvous::Standing::kInEpoch),
                      member(1, 0, -1, rendezvous::Standing::kFinished)};
  snapshot.progress.emplace();
  snapshot.progress->step = 10;
  snapshot.progress->total_steps = 20;
  snapshot.progress->examples_per_second = 64;
  snapshot.progress->loss = std::numeric_limits<double>::quiet_NaN();
  snapshot.progress->metrics = {{"eval_accuracy", 0.5}, {"gflops", 300}, {"peak_gflops", 900}};
  return snapshot;
}

TEST(ViewOf, GivesAWorkerTheLowestRankOfItsProcesses) {
  const RendezvousView view = view_of(running(), std::nullopt, 32);
  EXPECT_EQ(view.progress.members.at(0).rank, 0);
  EXPECT_EQ(view.progress.members.at(1).rank, -1);
  EXPECT_TRUE(view.progress.members.at(1).finished);
  EXPECT_EQ(view.progress.rendezvous_epoch, 3U);
  EXPECT_EQ(view.progress.latest_epoch, 3U);
}

TEST(ViewOf, TellsResultsFromFiguresOfTheMoment) {
  const RendezvousView view = view_of(running(), std::nullopt, 32);
  EXPECT_EQ(view.progress.metrics, (std::map<std::string, double>{{"eval_accuracy", 0.5}}));
  EXPECT_EQ(view.gflops_per_second, 300);
  EXPECT_EQ(view.progress.eta_seconds, 5) << "ten steps of 32 examples at 64 a second";
  EXPECT_FALSE(view.progress.loss) << "a loss that is no number is none";
}

TEST(ViewOf, KeepsWhatWasToldBeforeUntilThereIsNews) {
  rendezvous::Snapshot snapshot = running();
  rendezvous::Progress before;
  before.step = 7;
  EXPECT_EQ(view_of(snapshot, before, 32).progress.step, 10);
  snapshot.progress.reset();
  EXPECT_EQ(view_of(snapshot, before, 32).progress.step, 7);
}

TEST(ViewOf, RemembersWhoWasLostWhenAndWithWhichRank) {
  rendezvous::Snapshot snapshot = running();
  const rendezvous::Lost lost{{{2, 1}, 7}, 3, 5, rendezvous::LossKind::kConnectionClosed, "reset"};
  snapshot.losses.push_back({1, lost, kNow});
  const RendezvousView view = view_of(snapshot, std::nullopt, 32);
  ASSERT_EQ(view.progress.losses.size(), 1U);
  EXPECT_EQ(view.progress.losses[0].index, 2);
  EXPECT_EQ(view.progress.losses[0].slot, 1);
  EXPECT_EQ(view.progress.losses[0].rank, 5);
  EXPECT_EQ(view.progress.losses[0].when, kNow);
  EXPECT_FALSE(view.progress.members.contains(2)) << "it is no member any more";
}

TEST(ViewOf, KnowsThatAllIsDone) {
  rendezvous::Snapshot snapshot = running();
  EXPECT_FALSE(view_of(snapshot, std::nullopt, 32).progress.complete);
  for (const auto phase : {rendezvous::Phase::kClosing, rendezvous::Phase::kClosed}) {
    snapshot.phase = phase;
    EXPECT_TRUE(view_of(snapshot, std::nullopt, 32).progress.complete);
  }
}

class MarkSilent : public ::testing::Test {
 protected:
  MarkSilent() {
    Worker worker;
    worker.index = 2;
    worker.phase = WorkerPhase::kRunning;
    worker.started = kNow - seconds(60);
    workers_.push_back(worker);
  }
  bool silent(Duration listening = seconds(60)) {
    Progress progress = progress_;
    mark_silent(workers_, listening, seconds(10), kNow, progress);
    const auto found = progress.members.find(2);
    return found != progress.members.end() && found->second.silent;
  }
  std::vector<Worker> workers_;
  Progress progress_;
};

TEST_F(MarkSilent, IsAWorkerThatRunsAndIsNotHeard) { EXPECT_TRUE(silent()); }

TEST_F(MarkSilent, IsNobodyWhileTheCoordinatorHasNotListenedForLong) {
  EXPECT_FALSE(silent(seconds(9)));
  EXPECT_TRUE(silent(seconds(10)));
}

TEST_F(MarkSilent, IsNobodyWhoIsHeardOrHasOnlyJustStarted) {
  progress_.members[2].rank = 0;
  EXPECT_FALSE(silent());
  progress_.members.clear();
  workers_[0].started = kNow - seconds(5);
  EXPECT_FALSE(silent());
}

TEST_F(MarkSilent, IsAWorkerThatWaitsToBeStartedByANodeThatDoesNotReport) {
  const struct {
    const char* what;
    const char* node;
    bool node_ready;
    seconds age, listening;
    bool silent;
  } cases[] = {
      {"long on a dead node", "node-a", false, seconds(60), seconds(60), true},
      {"on a node that will start it", "node-a", true, seconds(60), seconds(60), false},
      {"on no node yet", "", true, seconds(60), seconds(60), false},
      {"on no node yet, and no node is known", "", false, seconds(60), seconds(60), false},
      {"created only just now", "node-a", false, seconds(9), seconds(60), false},
      {"created long enough ago", "node-a", false, seconds(10), seconds(60), true},
      {"the coordinator is new", "node-a", false, seconds(60), seconds(9), false},
  };
  Worker& worker = workers_[0];
  worker.phase = WorkerPhase::kPending;
  worker.started.reset();
  for (const auto& c : cases) {
    worker.node = c.node;
    worker.node_ready = c.node_ready;
    worker.created = kNow - c.age;
    EXPECT_EQ(silent(c.listening), c.silent) << c.what;
  }
  worker.terminating = true;
  EXPECT_TRUE(silent()) << "that its deletion has begun changes nothing";
  progress_.members[2].rank = 0;
  EXPECT_FALSE(silent()) << "it is heard: it was started, and nobody told";
}

// They leave the rendezvous; what becomes of the job then hangs on no silence (success.h).
TEST_F(MarkSilent, AreAlsoThoseWhoAreDone) {
  progress_.complete = true;
  EXPECT_TRUE(silent());
}

TEST_F(MarkSilent, IsNobodyWhoseEndIsKnown) {
  for (const WorkerPhase phase : {WorkerPhase::kSucceeded, WorkerPhase::kFailed}) {
    workers_[0].phase = phase;
    workers_[0].node_ready = false;
    EXPECT_FALSE(silent());
  }
}

}  // namespace
}  // namespace tilewright::reconcile
