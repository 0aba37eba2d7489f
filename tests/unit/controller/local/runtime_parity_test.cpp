// Runs a scripted sequence of failures with real processes under the local runtime and with pods as
// an API server returns them, and expects equal plans at every step.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "common/contract/labels.h"
#include "common/json/timestamp.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/cluster/objects.h"
#include "controller/cluster/observe_pod.h"
#include "controller/local/session.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

using nlohmann::json;
using policy::Observed;
using policy::Plan;
using std::chrono::seconds;

constexpr WallTime kStart{seconds(1767225600)};  // 2026-01-01T00:00:00Z
constexpr const char* kNode = "node-a";
constexpr const char* kRendezvous = "127.0.0.1:29400";

api::TrainJob elastic_job() {
  api::TrainJob job;
  job.metadata.name = "mrpc";
  job.metadata.uid = "11111111-2222-4333-8444-555555555555";
  job.metadata.generation = 1;
  job.spec.trainer = {"mrpc", "models:m", "data:d", "output:o", {}, {}};
  job.spec.volumes = {{"models", {}, {}}, {"data", {}, {}}, {"output", {}, {}}};
  job.spec.worker.replicas = 3;
  job.spec.elastic_policy.min_replicas = 1;
  api::apply_defaults(job);
  return job;
}

// The rendezvous view that both runtimes observe.
policy::RendezvousView view_at(std::int64_t step) {
  policy::RendezvousView view;
  view.epoch = 1;
  view.world = 3;
  view.progress.step = step;
  view.progress.total_steps = 100;
  view.progress.loss = 0.5;
  view.progress.phase = "training";
  for (int index = 0; index < 3; ++index) view.members[index].rank = index;
  return view;
}

class ScriptedCoordinator final : public Coordinator {
 public:
  ScriptedCoordinator() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  std::string endpoint() const override { return kRendezvous; }
  Status expect(const policy::Membership&) override { return {}; }
  void close() override {}
  void worker_exited(int) override {}
  std::optional<policy::RendezvousView> progress() const override { return view_at(step); }
  int changes_fd() const override { return fd_.get(); }
  void take_changes() override {}
  std::int64_t step = 0;

 private:
  FileDescriptor fd_;
};

// Real processes. Each worker evaluates the lines that a test writes to its pipe.
class Processes {
 public:
  explicit Processes(const WallTime& now)
      : signals_(Signals::install().or_throw()), console_({.output = -1}) {
    Session::Options options;
    options.workers.log_folder = folder_.path();
    options.workers.node = kNode;
    options.workers.grace = seconds(30);
    options.workers.now = [&now] { return now; };
    options.workers.new_uid = [this] { return fmt::format("uid-{}", next_uid_++); };
    options.workers.command = [this](const policy::WorkerCreation& creation) {
      const std::string pipe = pipe_of(creation.index);
      mkfifo(pipe.c_str(), 0600);
      ChildCommand command;
      command.program = "/bin/sh";
      command.arguments = {"-c", "while read line; do eval \"$line\"; done < " + pipe};
      command.environment = {"PATH=/usr/bin:/bin"};
      return Result<ChildCommand>(command);
    };
    options.save = [](const api::TrainJob&) { return Status(); };
    session_.emplace(elastic_job(), coordinator_, signals_, console_, std::move(options));
  }

  Observed observe() const { return session_->gather(); }
  ScriptedCoordinator& coordinator() { return coordinator_; }

  void apply(const Plan& plan) {
    session_->apply(plan);
    for (const policy::WorkerDeletion& deletion : plan.deletions) {
      run_until([&] { return find(deletion.index, deletion.uid) == nullptr; });
    }
  }

  void end(int index, int exit_code, const std::string& words) {
    const std::string how = exit_code > 128 ? fmt::format("kill -{} $$", exit_code - 128)
                                            : fmt::format("exit {}", exit_code);
    std::ofstream(pipe_of(index)) << "echo '" << words << "'; " << how << "\n";
    run_until([&] {
      const auto workers = session_->gather().workers;
      return std::ranges::any_of(workers, [&](const auto& worker) {
        return worker.index == index && worker.finished.has_value();
      });
    });
  }

 private:
  std::string pipe_of(int index) const {
    return folder_.path() / ("pipe-" + std::to_string(index));
  }
  std::optional<policy::Worker> found_;
  const policy::Worker* find(int index, const std::string& uid) {
    for (const policy::Worker& worker : session_->gather().workers) {
      if (worker.index == index && worker.uid == uid) return &found_.emplace(worker);
    }
    return nullptr;
  }
  template <typename Condition>
  void run_until(Condition done) {
    const MonotonicTime deadline = monotonic_now() + seconds(30);
    while (!done()) {
      ASSERT_LT(monotonic_now(), deadline) << "the expected state was not reached in time";
      session_->loop().run_once(deadline);
    }
  }

  testing::TemporaryDirectory folder_;
  Signals signals_;
  Console console_;
  ScriptedCoordinator coordinator_;
  int next_uid_ = 1;
  std::optional<Session> session_;
};

// Pods as JSON, with a scheduler and a kubelet that act immediately.
class Pods {
 public:
  explicit Pods(const WallTime& now) : now_(now) {}

  Observed observe() const {
    Observed observed;
    observed.job = job_;
    for (const json& pod : pods_) observed.workers.push_back(*cluster::worker_of_pod(pod));
    std::ranges::sort(observed.workers, {}, &policy::Worker::index);
    observed.rendezvous = view_at(step);
    observed.runtime.job_can_change = false;  // as under `up`
    return observed;
  }

  void apply(const Plan& plan) {
    if (plan.status) {
      // Encodes and decodes the job as the API server does.
      json object = api::to_json(job_);
      object["status"] = api::to_json(*plan.status);
      job_ = api::decode_object(object).job;
    }
    for (const policy::WorkerDeletion& deletion : plan.deletions) {
      std::erase_if(pods_, [&](const json& pod) { return pod["metadata"]["uid"] == deletion.uid; });
    }
    for (const policy::WorkerCreation& creation : plan.creations) {
      json pod = cluster::build_pod(job_, creation.index, {kRendezvous, ""});
      pod["metadata"]["uid"] = fmt::format("uid-{}", next_uid_++);
      pod["metadata"]["creationTimestamp"] = to_rfc3339(now_);
      pod["spec"]["nodeName"] = kNode;
      pod["status"] = {{"phase", "Running"},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
      set_state(pod, {{"running", {{"startedAt", to_rfc3339(now_)}}}});
      pods_.push_back(pod);
    }
  }

  void end(int index, int exit_code, const std::string& words) {
    for (json& pod : pods_) {
      if (pod["metadata"]["labels"][labels::kWorkerIndex] != std::to_string(index)) continue;
      pod["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
      pod["status"]["conditions"] = {{{"type", "Ready"}, {"status", "False"}}};
      set_state(pod, {{"terminated",
                       {{"exitCode", exit_code},
                        {"reason", exit_code == 0 ? "Completed" : "Error"},
                        {"message", words + "\n"},
                        {"startedAt", pod["metadata"]["creationTimestamp"]},
                        {"finishedAt", to_rfc3339(now_)}}}});
    }
  }

  std::int64_t step = 0;

 private:
  static void set_state(json& pod, const json& state) {
    pod["status"]["containerStatuses"] = {{{"name", kWorkerContainer}, {"state", state}}};
  }

  const WallTime& now_;
  api::TrainJob job_ = elastic_job();
  std::vector<json> pods_;
  int next_uid_ = 1;
};

// Describes a plan in the message of a failed comparison.
std::string describe(const Plan& plan) {
  std::string text = plan.status ? api::to_json(*plan.status).dump(1) : "no status";
  for (const auto& creation : plan.creations) text += "\ncreate " + creation.name;
  for (const auto& deletion : plan.deletions) {
    text += fmt::format("\ndelete {} {}{}", deletion.name, deletion.uid,
                        deletion.force ? " by force" : "");
  }
  for (const auto& event : plan.events) text += "\nevent " + event.reason + ": " + event.message;
  if (plan.membership) text += fmt::format("\nexpect {}", plan.membership->expected);
  if (plan.requeue_after) text += fmt::format("\nagain in {} ns", plan.requeue_after->count());
  return text + (plan.finished ? "\nfinished" : "");
}

struct ScriptedFailure {
  int after;  // seconds
  std::int64_t step;
  int index;  // index of the worker that exits; -1: no worker exits
  int exit_code;
  const char* words;
};

// Runs the script with both runtimes and compares every plan. Returns the last plan.
Plan run_on_both(const std::vector<ScriptedFailure>& script) {
  WallTime now = kStart;
  Processes processes(now);
  Pods pods(now);
  Plan last;
  int turns = 0;
  const auto reconcile_until_stable = [&] {
    for (bool stable = false; !stable; ++turns) {
      const Plan of_processes = policy::reconcile(processes.observe(), now);
      const Plan of_pods = policy::reconcile(pods.observe(), now);
      EXPECT_EQ(describe(of_processes), describe(of_pods)) << "iteration " << turns;
      EXPECT_TRUE(of_processes == of_pods) << "iteration " << turns;
      processes.apply(of_processes);
      pods.apply(of_pods);
      stable = !of_pods.status && of_pods.deletions.empty() && of_pods.creations.empty();
      last = of_pods;
    }
  };
  reconcile_until_stable();
  for (const ScriptedFailure& failure : script) {
    now += seconds(failure.after);
    processes.coordinator().step = pods.step = failure.step;
    if (failure.index >= 0) {
      processes.end(failure.index, failure.exit_code, failure.words);
      pods.end(failure.index, failure.exit_code, failure.words);
    }
    reconcile_until_stable();
  }
  return last;
}

TEST(RuntimeParity, PlansAreEqualThroughFailuresToSuccess) {
  const Plan last = run_on_both({
      {3, 5, 1, 1, "out of luck"},
      {2, 9, 0, 137, "killed"},
      {4, 12, 1, 139, "a fault"},
      {0, 12, -1, 0, ""},
      {1, 12, -1, 0, ""},
      {20, 40, 2, 144, "my peers are gone"},
      {60, 100, 2, 0, "done"},
      {1, 100, 1, 0, "done"},
      {1, 100, 0, 0, "done"},
  });
  EXPECT_TRUE(last.finished);
}

TEST(RuntimeParity, PlansAreEqualUntilTheRestartsAreUsedUp) {
  const Plan last = run_on_both({
      {1, 5, 0, 1, "one"},
      {10, 5, 1, 5, "two"},
      {10, 5, 0, 3, "three"},
      {10, 5, -1, 0, ""},
      {10, 5, 2, 4, "four"},
  });
  EXPECT_TRUE(last.finished);
}

}  // namespace
}  // namespace tilewright::local
