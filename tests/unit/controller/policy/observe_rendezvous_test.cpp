#include "controller/policy/observe_rendezvous.h"

#include <gtest/gtest.h>

#include <limits>

namespace tilewright::policy {
namespace {

using std::chrono::seconds;

constexpr WallTime kNow{seconds(1767225600)};

rendezvous::MemberView member(int index, int local_rank, int rank, rendezvous::MemberState state) {
  rendezvous::MemberView view;
  view.who.process = {index, local_rank};
  view.rank = rank;
  view.state = state;
  return view;
}

rendezvous::Snapshot running() {
  rendezvous::Snapshot snapshot;
  snapshot.phase = rendezvous::Phase::kRunning;
  snapshot.epoch = snapshot.latest_epoch = 3;
  snapshot.world = 4;
  snapshot.members = {member(0, 0, 1, rendezvous::MemberState::kInEpoch),
                      member(0, 1, 0, rendezvous::MemberState::kInEpoch),
                      member(1, 0, -1, rendezvous::MemberState::kFinished)};
  snapshot.progress.emplace();
  snapshot.progress->step = 10;
  snapshot.progress->total_steps = 20;
  snapshot.progress->examples_per_second = 64;
  snapshot.progress->loss = std::numeric_limits<double>::quiet_NaN();
  snapshot.progress->metrics = {{"eval_accuracy", 0.5},
                                {"gflops", 300},
                                {"peak_gflops", 900},
                                {"compute_seconds", 0.1},
                                {"exchange_seconds", 0.01},
                                {"a_figure_of_a_later_worker", 1},
                                {"shards", 4}};
  return snapshot;
}

TEST(ViewOf, GivesAWorkerTheLowestRankOfItsProcesses) {
  const RendezvousView view = view_of(running(), std::nullopt, 32);
  EXPECT_EQ(view.members.at(0).rank, 0);
  EXPECT_EQ(view.members.at(1).rank, -1);
  EXPECT_TRUE(view.members.at(1).finished);
  EXPECT_EQ(view.epoch, 3U);
  EXPECT_EQ(view.latest_epoch, 3U);
}

TEST(ViewOf, SeparatesEvaluationResultsFromFigures) {
  const RendezvousView view = view_of(running(), std::nullopt, 32);
  EXPECT_EQ(view.progress.metrics, (std::map<std::string, double>{{"eval_accuracy", 0.5}}));
  EXPECT_EQ(view.gflops_per_second, 300);
  EXPECT_EQ(view.eta_seconds, 5) << "10 steps of 32 examples at 64 examples/s";
}

TEST(ViewOf, SurvivesFiguresThatOverflow) {
  rendezvous::Snapshot snapshot = running();
  snapshot.progress->total_steps = std::int64_t{1} << 48;
  EXPECT_EQ(view_of(snapshot, std::nullopt, std::int64_t{1} << 40).eta_seconds, std::nullopt)
      << "steps x examples overflow";
  snapshot = running();
  snapshot.progress->examples_per_second = 1e-300;
  EXPECT_EQ(view_of(snapshot, std::nullopt, 32).eta_seconds, std::nullopt);
}

TEST(ViewOf, KeepsTheEarlierReportUntilTheSnapshotHasOne) {
  rendezvous::Snapshot snapshot = running();
  rendezvous::Progress before;
  before.step = 7;
  EXPECT_EQ(view_of(snapshot, before, 32).progress.step, 10);
  snapshot.progress.reset();
  EXPECT_EQ(view_of(snapshot, before, 32).progress.step, 7);
}

TEST(ViewOf, ListsLostProcesses) {
  rendezvous::Snapshot snapshot = running();
  const rendezvous::MemberLost lost{
      {{2, 1}, 7}, 3, 5, rendezvous::LossKind::kConnectionClosed, "reset"};
  snapshot.losses.push_back({1, lost, kNow});
  const RendezvousView view = view_of(snapshot, std::nullopt, 32);
  ASSERT_EQ(view.lost_processes.size(), 1U);
  EXPECT_EQ(view.lost_processes[0].index, 2);
  EXPECT_EQ(view.lost_processes[0].local_rank, 1);
  EXPECT_EQ(view.lost_processes[0].rank, 5);
  EXPECT_EQ(view.lost_processes[0].when, kNow);
  EXPECT_FALSE(view.members.contains(2)) << "no longer a member";
}

TEST(ViewOf, IsCompleteInTheClosingPhases) {
  rendezvous::Snapshot snapshot = running();
  EXPECT_FALSE(view_of(snapshot, std::nullopt, 32).complete);
  for (const auto phase : {rendezvous::Phase::kClosing, rendezvous::Phase::kClosed}) {
    snapshot.phase = phase;
    EXPECT_TRUE(view_of(snapshot, std::nullopt, 32).complete);
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
    RendezvousView view = view_;
    mark_silent(workers_, listening, seconds(10), kNow, view);
    const auto found = view.members.find(2);
    return found != view.members.end() && found->second.silent;
  }
  std::vector<Worker> workers_;
  RendezvousView view_;
};

TEST_F(MarkSilent, MarksARunningWorkerWithoutHeartbeats) { EXPECT_TRUE(silent()); }

TEST_F(MarkSilent, WaitsUntilTheCoordinatorHasListenedLongEnough) {
  EXPECT_FALSE(silent(seconds(9)));
  EXPECT_TRUE(silent(seconds(10)));
}

TEST_F(MarkSilent, SkipsMembersAndWorkersThatHaveJustStarted) {
  view_.members[2].rank = 0;
  EXPECT_FALSE(silent());
  view_.members.clear();
  workers_[0].started = kNow - seconds(5);
  EXPECT_FALSE(silent());
}

TEST_F(MarkSilent, MarksAPendingWorkerOnANodeThatDoesNotReport) {
  const struct {
    const char* what;
    const char* node;
    bool unreachable;
    seconds age, listening;
    bool silent;
  } cases[] = {
      {"created long ago on a dead node", "node-a", true, seconds(60), seconds(60), true},
      {"on a node that reports", "node-a", false, seconds(60), seconds(60), false},
      {"no node", "", false, seconds(60), seconds(60), false},
      {"just created", "node-a", true, seconds(9), seconds(60), false},
      {"created at the timeout", "node-a", true, seconds(10), seconds(60), true},
      {"the coordinator is new", "node-a", true, seconds(60), seconds(9), false},
  };
  Worker& worker = workers_[0];
  worker.phase = WorkerPhase::kPending;
  worker.started.reset();
  for (const auto& c : cases) {
    worker.node = c.node;
    worker.node_state = c.unreachable ? NodeState::kUnreachable : NodeState::kReady;
    worker.created = kNow - c.age;
    EXPECT_EQ(silent(c.listening), c.silent) << c.what;
  }
  worker.created = kNow - seconds(600);
  worker.scheduled = kNow - seconds(9);
  EXPECT_FALSE(silent()) << "it waited for this node, which has just been added";
  worker.scheduled = kNow - seconds(10);
  EXPECT_TRUE(silent());
  worker.terminating = true;
  EXPECT_TRUE(silent()) << "its deletion changes nothing";
  view_.members[2].rank = 0;
  EXPECT_FALSE(silent()) << "it has joined, so it was started";
}

// Finished workers leave the rendezvous. Success does not depend on silence (success.h).
TEST_F(MarkSilent, AlsoMarksFinishedWorkers) {
  view_.complete = true;
  EXPECT_TRUE(silent());
}

TEST_F(MarkSilent, SkipsWorkersThatHaveEnded) {
  for (const WorkerPhase phase : {WorkerPhase::kSucceeded, WorkerPhase::kFailed}) {
    workers_[0].phase = phase;
    workers_[0].node_state = NodeState::kNotReady;
    EXPECT_FALSE(silent());
  }
}

}  // namespace
}  // namespace tilewright::policy
