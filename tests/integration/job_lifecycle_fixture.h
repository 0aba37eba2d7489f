// Fixture that runs a job from creation through a failure of worker 1 to success. Tests with
// injected faults expect the same end state.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {

// Runs a job in which worker 1 fails once, then deletes the job and its pods.
class JobLifecycleTest : public ControllerTest {
 protected:
  // Records every pod by index and checks that no two pods of one index live at once.
  void track_pods() {
    pod_watch_ = std::make_unique<ObjectWatch>(
        *client_, kube::resource::pods(), namespace_,
        [this](const std::string& name, const json& pod) { record_pod(name, pod); });
  }
  void record_pod(const std::string& name, const json& pod) {
    if (pod.is_null()) return;
    {
      const std::lock_guard lock(mutex_);
      pod_uids_[name].insert(pod["metadata"]["uid"].get<std::string>());
    }
    pod_recorded_.notify_all();
  }
  std::size_t pods_created(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return pod_uids_[name].size();
  }
  // Waits until that many pods of the name are recorded. After a restart of the API server each
  // watch reconnects in its own time, so that of the pods may lag behind that of the jobs.
  bool wait_for_pods_created(const std::string& name, std::size_t count) {
    std::unique_lock lock(mutex_);
    return pod_recorded_.wait_for(lock, std::chrono::seconds(90),
                                  [&] { return pod_uids_[name].size() >= count; });
  }

  // The part of the status that does not depend on when a process died.
  static json end_state(const json& job) {
    const json& status = job["status"];
    json state = {{"phase", status["phase"]},
                  {"replicas", status["replicas"]},
                  {"restarts", status["restarts"]},
                  {"failures", json::array()}};
    for (const json& failure : status["failures"]) {
      state["failures"].push_back(
          {failure["index"], failure["cause"], failure["signal"], failure["reason"]});
    }
    for (const json& condition : status["conditions"]) {
      state["conditions"][condition["type"].get<std::string>()] = condition["status"];
    }
    return state;
  }

  struct Hooks {
    // Called right after each of the job's events (creation, failure, success), before the
    // controller has handled it.
    std::function<void()> after_step = [] {};
    // Called when a wait takes long: starts a controller if none runs.
    std::function<void()> ensure_running = [] {};
  };
  static constexpr int kSteps = 3;

  // An additional condition after the job has succeeded; polled every kPollInterval.
  using FinalCheck = std::function<bool()>;
  static constexpr std::chrono::milliseconds kPollInterval{100};

  // Runs a job from its creation to its end. Needs track_pods().
  ::testing::AssertionResult run_job(const Hooks& hooks, const FinalCheck& final_check = {}) {
    const auto step = [&](const char* what, const std::function<bool()>& came) {
      hooks.after_step();
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
      while (!came()) {
        hooks.ensure_running();
        if (std::chrono::steady_clock::now() > deadline) return what;
      }
      return static_cast<const char*>(nullptr);
    };
    const auto job_is = [&](const std::function<bool(const json&)>& holds) {
      return [this, holds] {
        return jobs_->wait_until(
            [&](const Objects& jobs) { return jobs.contains("mrpc") && holds(jobs.at("mrpc")); },
            kPollInterval);
      };
    };
    create_job(manifest_);
    const auto all_ready = [](const json& job) {
      return phase_of(job) == "Running" && job["status"]["replicas"]["ready"] == 2;
    };
    if (const char* what = step("running", job_is(all_ready)))
      return ::testing::AssertionFailure() << what;
    if (!wait_for_pods_created("mrpc-worker-1", 1)) {
      return ::testing::AssertionFailure() << "the watch has not seen worker 1";
    }
    node_->end_container("mrpc-worker-1", 139, "Error");
    if (const char* what = step("running again", job_is([&](const json& job) {
                                  return all_ready(job) &&
                                         job["status"]["restarts"]["program"] == 1;
                                }))) {
      return ::testing::AssertionFailure() << what << ": " << job().dump(1);
    }
    if (!wait_for_pods_created("mrpc-worker-1", 2)) {
      return ::testing::AssertionFailure() << "the watch has not seen the replacement of worker 1";
    }
    // The node's watch may lag behind the controller's.
    if (!wait_for_live_pods(2)) return ::testing::AssertionFailure() << "expected two live pods";
    node_->succeed_all();
    if (const char* what = step(
            "succeeded", job_is([](const json& job) { return phase_of(job) == "Succeeded"; }))) {
      return ::testing::AssertionFailure() << what << ": " << job().dump(1);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (final_check && !final_check()) {
      hooks.ensure_running();
      if (std::chrono::steady_clock::now() > deadline) {
        return ::testing::AssertionFailure() << "objects remain";
      }
    }
    return ::testing::AssertionSuccess();
  }

  void clean_up() {
    const std::string core = "/api/v1/namespaces/" + namespace_;
    admin().remove(jobs_path() + "/mrpc");
    for (const auto& [name, pod] : node_->pods().objects()) admin().remove(core + "/pods/" + name);
    admin().remove(core + "/services/mrpc");
    admin().remove(
        fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc", namespace_));
    EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
    EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
    // A new watch, so that late events of these pods do not count for the next job.
    EXPECT_TRUE(!pod_watch_ ||
                pod_watch_->wait_until([](const Objects& pods) { return pods.empty(); }));
    const std::lock_guard lock(mutex_);
    pod_uids_.clear();
  }

  std::string manifest_ = kControllerJob;
  std::unique_ptr<ObjectWatch> pod_watch_;
  std::mutex mutex_;
  std::condition_variable pod_recorded_;
  std::map<std::string, std::set<std::string>> pod_uids_;

  void TearDown() override {
    pod_watch_.reset();
    ControllerTest::TearDown();
  }
};

}  // namespace tilewright::testing
