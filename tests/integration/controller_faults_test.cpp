// A job reaches the same end state whatever fails: the controller crashes at each of its writes,
// leadership alternates between two controllers, or the API server restarts.
#include "tests/integration/job_lifecycle_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

class ControllerFaults : public JobLifecycleTest {
 protected:
  // The end state of a run without faults.
  json run_without_faults(const FinalCheck& final_check = {}) {
    start_controller("", kNoLeaderElection);
    EXPECT_TRUE(run_job({}, final_check));
    json state = end_state(job());
    controllers_.clear();
    clean_up();
    return state;
  }

  // Runs a job once for each write of the controller. In run n, the controller dies before or after
  // (`point`) its n-th write and another one continues. Returns the number of writes.
  int crash_at_each_write(const char* point, const json& expected,
                          const FinalCheck& final_check = {}) {
    constexpr int kMaxWrites = 60;
    int writes = 0;
    for (bool died = true; died;) {
      const int number = writes + 1;
      EXPECT_LT(number, kMaxWrites) << "too many writes in one job";
      SCOPED_TRACE(fmt::format("{}@{}", point, number));
      died = false;
      start_controller(fmt::format("{}@{}", point, number), kNoLeaderElection);
      const auto ensure_running = [&] {
        if (died || !controllers_.back()->has_exited()) return;
        died = true;
        start_controller("", kNoLeaderElection);
      };
      EXPECT_TRUE(run_job({.ensure_running = ensure_running}, final_check));
      EXPECT_EQ(end_state(job()), expected);
      EXPECT_EQ(pods_created("mrpc-worker-0"), 1U);
      EXPECT_EQ(pods_created("mrpc-worker-1"), 2U);
      if (HasFailure()) break;
      controllers_.clear();
      clean_up();
      if (died) ++writes;
    }
    return writes;
  }
};

TEST_F(ControllerFaults, KeepTheEndStateWhenTheControllerCrashesAtAnyWrite) {
  track_pods();
  const json expected = run_without_faults();
  EXPECT_EQ(expected["restarts"]["program"], 1);
  EXPECT_EQ(expected["phase"], "Succeeded");
  int writes = 0;
  for (const char* point : {"before_write", "after_write"}) {
    writes += crash_at_each_write(point, expected);
  }
  // At least: three status updates, three owned resources, three pods, one delete, events.
  EXPECT_GE(writes, 2 * 12);
  RecordProperty("deaths", writes);
}

// A new leader must not recreate the resources that cleanup deletes last.
TEST_F(ControllerFaults, LeaveNothingWithCleanPodPolicyAll) {
  manifest_.replace(manifest_.find("  trainer:"), 10,
                    "  runPolicy: {cleanPodPolicy: All}\n  trainer:");
  track_pods();
  ObjectWatch services(*client_, kube::resource::services(), namespace_);
  ObjectWatch secrets(*client_, kube::resource::secrets(), namespace_);
  ObjectWatch policies(*client_, kube::resource::network_policies(), namespace_);
  const auto none = [](const Objects& objects) { return objects.empty(); };
  const auto none_of_the_job = [](const Objects& objects) {
    return std::ranges::none_of(objects,
                                [](const auto& one) { return one.first.starts_with("mrpc"); });
  };
  const FinalCheck nothing_is_left = [&] {
    return services.wait_until(none, kPollInterval) && policies.wait_until(none, kPollInterval) &&
           secrets.wait_until(none_of_the_job, kPollInterval) &&
           node_->pods().wait_until(none, kPollInterval);
  };
  const json expected = run_without_faults(nothing_is_left);
  EXPECT_GE(crash_at_each_write("after_write", expected, nothing_is_left), 12);
}

TEST_F(ControllerFaults, KeepTheEndStateWhenLeadershipAlternates) {
  track_pods();
  const std::vector<std::string> both = {"--lease_name=turns"};
  start_controller("", both);
  const auto leading = [&](RunningProgram& one) { one.wait_for_output("became the leader"); };
  leading(*controllers_.back());
  // A leader that receives SIGTERM releases its lease, so the standby acquires it at once.
  int handovers = 0;
  ASSERT_TRUE(run_job({.after_step = [&] {
    for (int i = 0; i < 2; ++i, ++handovers) {
      start_controller("", both);
      RunningProgram& before = **std::prev(controllers_.end(), 2);
      before.send(SIGTERM);
      EXPECT_EQ(before.wait(), 0);
      leading(*controllers_.back());
    }
  }}));
  EXPECT_EQ(handovers, 2 * kSteps);
  EXPECT_EQ(job()["status"]["restarts"]["program"], 1);
  EXPECT_EQ(pods_created("mrpc-worker-0"), 1U);
  EXPECT_EQ(pods_created("mrpc-worker-1"), 2U);
  EXPECT_EQ(job()["status"]["failures"].size(), 1U);
}

// The paused leader resumes with a write that it started before another one became the leader.
TEST_F(ControllerFaults, KeepTheEndStateWhenALeaderIsPausedPastItsLeaseAtAnyWrite) {
  track_pods();
  const json expected = run_without_faults();
  constexpr int kMaxWrites = 60;
  int writes = 0;
  for (bool paused = true; paused && !HasFailure();) {
    const int number = writes + 1;
    ASSERT_LT(number, kMaxWrites);
    SCOPED_TRACE(fmt::format("pause_at_write@{}", number));
    const std::vector<std::string> short_lease = {
        fmt::format("--lease_name=pauses-{}", number), "--leader_elect_lease_duration=3",
        "--leader_elect_renew_deadline=2", "--leader_elect_retry_period=1"};
    RunningProgram& first = start_controller(fmt::format("pause_at_write@{}", number), short_lease);
    paused = false;
    const auto ensure_running = [&] {
      if (paused || !first.stopped()) return;
      paused = true;
      ASSERT_TRUE(start_controller("", short_lease).wait_for_output("became the leader"));
      first.send(SIGCONT);
    };
    EXPECT_TRUE(run_job({.ensure_running = ensure_running}));
    EXPECT_EQ(end_state(job()), expected);
    EXPECT_EQ(pods_created("mrpc-worker-0"), 1U);
    EXPECT_EQ(pods_created("mrpc-worker-1"), 2U);
    if (paused) {
      EXPECT_TRUE(first.wait_for_output("no longer the leader"));
      ++writes;
    }
    controllers_.clear();
    clean_up();
  }
  // At least as many writes as in the crash test.
  EXPECT_GE(writes, 12);
}

TEST_F(ControllerFaults, KeepTheEndStateWhenTheApiServerRestarts) {
  track_pods();
  start_controller("", kNoLeaderElection);
  int restarts = 0;
  ASSERT_TRUE(run_job({.after_step = [&] {
    ++restarts;
    control_plane().kill_api_server();
    control_plane().start_api_server();
  }}));
  EXPECT_EQ(restarts, kSteps);
  EXPECT_EQ(job()["status"]["restarts"]["program"], 1);
  EXPECT_EQ(pods_created("mrpc-worker-0"), 1U);
  EXPECT_EQ(pods_created("mrpc-worker-1"), 2U);
}

}  // namespace
}  // namespace tilewright::testing
