// Whatever fails on the way, a job ends in the same state: the controller killed at each of its
// writes, two of them with leadership going back and forth, the API server restarted.
#include "tests/integration/controller_life.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

class ControllerFaults : public ControllerLife {};

TEST_F(ControllerFaults, EndTheSameWhicheverWriteTheControllerDiesAt) {
  watch_lives();
  start_controller("", kAlone);
  ASSERT_TRUE(live_through({}));
  const json expected = end_state(job());
  EXPECT_EQ(expected["restarts"]["program"], 1);
  EXPECT_EQ(expected["phase"], "Succeeded");
  controllers_.clear();
  clear_away();

  constexpr int kMostWrites = 60;
  int writes = 0;
  for (const char* point : {"before_write", "after_write"}) {
    bool died = true;
    for (int number = 1; died; ++number) {
      ASSERT_LT(number, kMostWrites) << "a job's life has become a long one";
      SCOPED_TRACE(fmt::format("{}@{}", point, number));
      died = false;
      start_controller(fmt::format("{}@{}", point, number), kAlone);
      ASSERT_TRUE(live_through({.alive = [&] {
        if (died || !controllers_.back()->ended()) return;
        died = true;
        start_controller("", kAlone);
      }}));
      EXPECT_EQ(end_state(job()), expected);
      EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
      EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
      if (HasFailure()) return;
      controllers_.clear();
      clear_away();
      if (died) ++writes;
    }
  }
  // Status three times at least, three companions, three pods, a deletion, events.
  EXPECT_GE(writes, 2 * 12);
  RecordProperty("deaths", writes);
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
