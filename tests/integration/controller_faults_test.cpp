// Whatever fails on the way, a job ends in the same state: the controller killed at each of its
// writes, two of them with leadership going back and forth, the API server restarted.
#include "tests/integration/controller_life.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

class ControllerFaults : public ControllerLife {
 protected:
  // The end of a life in which nothing goes wrong.
  json undisturbed(const Afterwards& afterwards = {}) {
    start_controller("", kAlone);
    EXPECT_TRUE(live_through({}, afterwards));
    json state = end_state(job());
    controllers_.clear();
    clear_away();
    return state;
  }

  // A life for each write that the controller makes in one, in which it dies before or after it
  // (`point`) and another goes on. How many that were.
  int die_at_each_write(const char* point, const json& expected,
                        const Afterwards& afterwards = {}) {
    constexpr int kMostWrites = 60;
    int writes = 0;
    for (bool died = true; died;) {
      const int number = writes + 1;
      EXPECT_LT(number, kMostWrites) << "a job's life has become a long one";
      SCOPED_TRACE(fmt::format("{}@{}", point, number));
      died = false;
      start_controller(fmt::format("{}@{}", point, number), kAlone);
      const auto alive = [&] {
        if (died || !controllers_.back()->ended()) return;
        died = true;
        start_controller("", kAlone);
      };
      EXPECT_TRUE(live_through({.alive = alive}, afterwards));
      EXPECT_EQ(end_state(job()), expected);
      EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
      EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
      if (HasFailure()) break;
      controllers_.clear();
      clear_away();
      if (died) ++writes;
    }
    return writes;
  }
};

TEST_F(ControllerFaults, EndTheSameWhicheverWriteTheControllerDiesAt) {
  watch_lives();
  const json expected = undisturbed();
  EXPECT_EQ(expected["restarts"]["program"], 1);
  EXPECT_EQ(expected["phase"], "Succeeded");
  int writes = 0;
  for (const char* point : {"before_write", "after_write"}) {
    writes += die_at_each_write(point, expected);
  }
  // Status three times at least, three companions, three pods, a deletion, events.
  EXPECT_GE(writes, 2 * 12);
  RecordProperty("deaths", writes);
}

// What is removed last, a new leader must know to be left.
TEST_F(ControllerFaults, LeaveNothingOfAJobThatIsToBeCleanedUpWhole) {
  manifest_.replace(manifest_.find("  trainer:"), 10,
                    "  runPolicy: {cleanPodPolicy: All}\n  trainer:");
  watch_lives();
  ObjectWatch services(*client_, kube::resource::services(), space_);
  ObjectWatch secrets(*client_, kube::resource::secrets(), space_);
  ObjectWatch policies(*client_, kube::resource::network_policies(), space_);
  const auto none = [](const Objects& objects) { return objects.empty(); };
  const auto none_of_the_job = [](const Objects& objects) {
    return std::ranges::none_of(objects,
                                [](const auto& one) { return one.first.starts_with("mrpc"); });
  };
  const Afterwards nothing_is_left = [&] {
    return services.wait_until(none, kMoment) && policies.wait_until(none, kMoment) &&
           secrets.wait_until(none_of_the_job, kMoment) && node_->pods().wait_until(none, kMoment);
  };
  const json expected = undisturbed(nothing_is_left);
  EXPECT_GE(die_at_each_write("after_write", expected, nothing_is_left), 12);
}

TEST_F(ControllerFaults, EndTheSameWithTwoControllersThatTakeTurns) {
  watch_lives();
  const std::vector<std::string> both = {"--lease_name=turns"};
  start_controller("", both);
  const auto leading = [&](RunningProgram& one) { one.say("became the leader"); };
  leading(*controllers_.back());
  // Asked to stop, a leader gives its lease up, and the standby has it at once.
  int handovers = 0;
  ASSERT_TRUE(live_through({.underway = [&] {
    for (int i = 0; i < 2; ++i, ++handovers) {
      start_controller("", both);
      RunningProgram& before = **std::prev(controllers_.end(), 2);
      before.send(SIGTERM);
      EXPECT_EQ(before.wait(), 0);
      leading(*controllers_.back());
    }
  }}));
  EXPECT_EQ(handovers, 2 * kTurns);
  EXPECT_EQ(job()["status"]["restarts"]["program"], 1);
  EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
  EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
  EXPECT_EQ(job()["status"]["failures"].size(), 1U);
}

// Another leads already when it goes on with a write that it had leave for.
TEST_F(ControllerFaults, EndTheSameWhicheverWriteALeaderIsPausedAtForLongerThanItsLease) {
  watch_lives();
  const json expected = undisturbed();
  constexpr int kMostWrites = 60;
  int writes = 0;
  for (bool paused = true; paused && !HasFailure();) {
    const int number = writes + 1;
    ASSERT_LT(number, kMostWrites);
    SCOPED_TRACE(fmt::format("pause_at_write@{}", number));
    const std::vector<std::string> briefly = {
        fmt::format("--lease_name=pauses-{}", number), "--leader_elect_lease_duration=3",
        "--leader_elect_renew_deadline=2", "--leader_elect_retry_period=1"};
    RunningProgram& first = start_controller(fmt::format("pause_at_write@{}", number), briefly);
    paused = false;
    const auto alive = [&] {
      if (paused || !first.stopped()) return;
      paused = true;
      ASSERT_TRUE(start_controller("", briefly).say("became the leader"));
      first.send(SIGCONT);
    };
    EXPECT_TRUE(live_through({.alive = alive}));
    EXPECT_EQ(end_state(job()), expected);
    EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
    EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
    if (paused) {
      EXPECT_TRUE(first.say("no longer the leader"));
      ++writes;
    }
    controllers_.clear();
    clear_away();
  }
  // As many as those at which it may die.
  EXPECT_GE(writes, 12);
}

TEST_F(ControllerFaults, EndTheSameThoughTheApiServerIsRestarted) {
  watch_lives();
  start_controller("", kAlone);
  int restarts = 0;
  ASSERT_TRUE(live_through({.underway = [&] {
    ++restarts;
    control_plane().kill_api_server();
    control_plane().start_api_server();
  }}));
  EXPECT_EQ(restarts, kTurns);
  EXPECT_EQ(job()["status"]["restarts"]["program"], 1);
  EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
  EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
}

}  // namespace
}  // namespace tilewright::testing
