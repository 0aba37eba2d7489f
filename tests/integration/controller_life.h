// A job's life under the controller, from its creation through a failure of worker 1 to success:
// for tests in which much goes wrong on the way, and the end is the same.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {

// Lives through a failure of worker 1 and ends well; deletes what is left of it.
class ControllerLife : public ControllerTest {
 protected:
  // As many pods as were ever seen, by index: of one index no two may live at once.
  void watch_lives() {
    lives_ = std::make_unique<ObjectWatch>(
        *client_, kube::resource::pods(), space_,
        [this](const std::string& name, const json& pod) { note(name, pod); });
  }
  void note(const std::string& name, const json& pod) {
    const std::lock_guard lock(mutex_);
    if (!pod.is_null()) uids_[name].insert(pod["metadata"]["uid"].get<std::string>());
  }
  std::size_t incarnations(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return uids_[name].size();
  }

  // What does not depend on when who died.
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

  struct Course {
    // Once for each of the job's turns, creation, failure and success: right after it was set off,
    // with the controller's work still to be done.
    std::function<void()> underway = [] {};
    // Sees to it that a controller runs: whenever something takes long to come.
    std::function<void()> alive = [] {};
  };
  static constexpr int kTurns = 3;

  // What else shall come once the job has succeeded: whether it has, after at most kMoment.
  using Afterwards = std::function<bool()>;
  static constexpr std::chrono::milliseconds kMoment{100};

  // Runs a job from its creation to its end.
  ::testing::AssertionResult live_through(const Course& course, const Afterwards& afterwards = {}) {
    const auto step = [&](const char* what, const std::function<bool()>& came) {
      course.underway();
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!came()) {
        course.alive();
        if (std::chrono::steady_clock::now() > deadline) return what;
      }
      return static_cast<const char*>(nullptr);
    };
    const auto job_is = [&](const std::function<bool(const json&)>& holds) {
      return [this, holds] {
        return jobs_->wait_until(
            [&](const Objects& jobs) { return jobs.contains("mrpc") && holds(jobs.at("mrpc")); },
            kMoment);
      };
    };
    create_job(manifest_);
    const auto all_ready = [](const json& job) {
      return phase_of(job) == "Running" && job["status"]["replicas"]["ready"] == 2;
    };
    if (const char* what = step("running", job_is(all_ready)))
      return ::testing::AssertionFailure() << what;
    node_->end_container("mrpc-worker-1", 139, "Error");
    if (const char* what = step("running again", job_is([&](const json& job) {
                                  return all_ready(job) &&
                                         job["status"]["restarts"]["program"] == 1;
                                }))) {
      return ::testing::AssertionFailure() << what << ": " << job().dump(1);
    }
    // The node's own view may lag behind the controller's.
    if (!wait_for_live_pods(2)) return ::testing::AssertionFailure() << "two live pods";
    node_->succeed_all();
    if (const char* what = step(
            "succeeded", job_is([](const json& job) { return phase_of(job) == "Succeeded"; }))) {
      return ::testing::AssertionFailure() << what << ": " << job().dump(1);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (afterwards && !afterwards()) {
      course.alive();
      if (std::chrono::steady_clock::now() > deadline) {
        return ::testing::AssertionFailure() << "something is left";
      }
    }
    return ::testing::AssertionSuccess();
  }

  void clear_away() {
    const std::string core = "/api/v1/namespaces/" + space_;
    admin().remove(jobs_path() + "/mrpc");
    for (const auto& [name, pod] : node_->pods().objects()) admin().remove(core + "/pods/" + name);
    admin().remove(core + "/services/mrpc");
    admin().remove(
        fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc", space_));
    EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
    EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
    // Another watch: what it has still to tell of these would be taken for the next life's.
    EXPECT_TRUE(!lives_ || lives_->wait_until([](const Objects& pods) { return pods.empty(); }));
    const std::lock_guard lock(mutex_);
    uids_.clear();
  }

  std::string manifest_ = kControllerJob;
  std::unique_ptr<ObjectWatch> lives_;
  std::mutex mutex_;
  std::map<std::string, std::set<std::string>> uids_;

  void TearDown() override {
    lives_.reset();
    ControllerTest::TearDown();
  }
};

}  // namespace tilewright::testing
