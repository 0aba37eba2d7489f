// How the policies see a PyTorchJob, and the status that Kubeflow's clients see.
#include "controller/cluster/pytorch_view.h"

#include <gmock/gmock.h>

#include "controller/cluster/pytorch_status.h"
#include "controller/policy/conditions.h"
#include "controller/policy/elasticity.h"
#include "controller/policy/messages.h"

namespace tilewright::cluster {
namespace {

using api::Phase;
using nlohmann::json;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr WallTime kNow{seconds(1767225600)};

api::PyTorchReplicaSpec replica(std::int64_t replicas, api::RestartPolicy policy) {
  api::PyTorchReplicaSpec spec;
  spec.replicas = replicas;
  spec.restart_policy = policy;
  spec.pod_template = json::parse(R"({"spec": {"nodeSelector": {"type": "spr"}, "containers": [
      {"name": "pytorch", "image": "trainer:1", "resources": {
        "requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}}]}})");
  return spec;
}

api::PyTorchJob viewed_job(std::int64_t workers, bool master) {
  api::PyTorchJob job;
  job.metadata.name = "qa";
  job.metadata.uid = "uid";
  if (master) job.spec.master = replica(1, api::RestartPolicy::kNever);
  if (workers > 0) job.spec.worker = replica(workers, api::RestartPolicy::kExitCode);
  return job;
}

TEST(PyTorchView, HasTheSizesOfMasterAndWorkers) {
  api::PyTorchJob job = viewed_job(3, true);
  policy::Sizes sizes = policy::sizes_of(view_of(job).job);
  EXPECT_EQ(sizes.desired, 4);
  EXPECT_EQ(sizes.min, 4);
  EXPECT_EQ(sizes.max, 4);
  job.spec.elastic_policy.emplace();
  job.spec.elastic_policy->min_replicas = 1;
  job.spec.elastic_policy->max_replicas = 5;
  sizes = policy::sizes_of(view_of(job).job);
  EXPECT_EQ(sizes.desired, 4);
  EXPECT_EQ(sizes.min, 2);
  EXPECT_EQ(sizes.max, 6);
}

TEST(PyTorchView, TakesTheNearestBoundForReplicasOutside) {
  api::PyTorchJob job = viewed_job(5, false);
  job.spec.elastic_policy.emplace();
  job.spec.elastic_policy->min_replicas = 2;
  job.spec.elastic_policy->max_replicas = 4;
  EXPECT_EQ(policy::sizes_of(view_of(job).job).desired, 4);
  job.spec.worker->replicas = 1;
  EXPECT_EQ(policy::sizes_of(view_of(job).job).desired, 2);
}

TEST(PyTorchView, LimitsRestarts) {
  api::PyTorchJob job = viewed_job(1, false);
  EXPECT_EQ(view_of(job).job.spec.elastic_policy.max_restarts, kDefaultPyTorchRestarts);
  job.spec.elastic_policy.emplace();
  job.spec.elastic_policy->max_restarts = 7;
  EXPECT_EQ(view_of(job).job.spec.elastic_policy.max_restarts, 7);
  job.spec.run_policy.backoff_limit = 2;
  EXPECT_EQ(view_of(job).job.spec.elastic_policy.max_restarts, 2);
}

TEST(PyTorchView, ReadsTheTemplateAndTheRestartPolicies) {
  const JobView view = view_of(viewed_job(1, true));
  EXPECT_TRUE(view.traits.has_master);
  EXPECT_FALSE(view.traits.runs_tilewright);
  EXPECT_EQ(view.traits.master_restart_policy, api::RestartPolicy::kNever);
  EXPECT_EQ(view.job.spec.worker.restart_policy, api::RestartPolicy::kExitCode);
  EXPECT_EQ(view.job.spec.worker.image, "trainer:1");
  EXPECT_EQ(view.job.spec.worker.node_selector.at("type"), "spr");
  EXPECT_EQ(view.job.spec.worker.resources.at("cpu").text, "1") << "the scheduler counts requests";
  EXPECT_EQ(view.job.spec.worker.resources.at("memory").text, "4Gi");
}

TEST(PyTorchView, TheNumberOfProcessesCanBeLeftToTheNode) {
  api::PyTorchJob job = viewed_job(1, false);
  for (const char* text : {"auto", "cpu", "gpu"}) {
    job.spec.nproc_per_node = text;
    EXPECT_TRUE(view_of(job).job.spec.nproc_per_node->automatic) << text;
  }
  job.spec.nproc_per_node = "2";
  EXPECT_EQ(view_of(job).job.spec.nproc_per_node, 2);
}

api::PyTorchJob guide_job(const std::string& flags) {
  api::PyTorchJob job = viewed_job(4, false);
  api::PyTorchElasticPolicy& elastic = job.spec.elastic_policy.emplace();
  elastic.min_replicas = 1;
  elastic.max_replicas = 4;
  job.metadata.creation_timestamp = kNow;
  json& container = job.spec.worker->pod_template["spec"]["containers"][0];
  container["command"] = {"/bin/bash", "-c"};
  container["args"] = {
      "cd /workspace; pip install -r r.txt; torchrun /workspace/run_qa.py "
      "--model_name_or_path m --dataset_name squad --output_dir "
      "/disk/output_$(date +%Y%m%d_%H%M%S) " +
      flags + ";"};
  return job;
}

TEST(PyTorchView, HasTheSizesThatTheCommandDecides) {
  api::PyTorchJob job =
      guide_job("--per_device_train_batch_size 3 --gradient_accumulation_steps 2");
  job.spec.nproc_per_node = "2";
  const JobView view = view_of(job);
  EXPECT_TRUE(view.trains_natively);
  EXPECT_FALSE(view.traits.runs_tilewright) << "the image may be another one";
  EXPECT_EQ(api::nominal_workers(view.job), 8);
  EXPECT_EQ(api::global_batch(view.job), 48);
  EXPECT_EQ(api::virtual_shards(view.job), 8);
  EXPECT_TRUE(api::is_exact(view.job));
  EXPECT_EQ(api::virtual_shards(view_of(guide_job("--virtual_shards 4")).job), 4);
  EXPECT_FALSE(api::is_exact(view_of(guide_job("--no_exact")).job));
}

TEST(PyTorchView, TheCommandDecidesTheNumberOfProcesses) {
  api::PyTorchJob job = guide_job("");
  job.spec.nproc_per_node = "2";
  json& container = job.spec.worker->pod_template["spec"]["containers"][0];
  container["command"] = {"torchrun", "--nproc-per-node=3", "run_glue.py", "--output_dir", "/o"};
  container.erase("args");
  EXPECT_EQ(view_of(job).job.spec.nproc_per_node, 3);
  container["command"] = {"torchrun", "--nproc-per-node=$(PET_NPROC_PER_NODE)", "run_glue.py",
                          "--output_dir", "/o"};
  container["env"] = json::array({{{"name", "PET_NPROC_PER_NODE"}, {"value", "4"}}});
  EXPECT_EQ(view_of(job).job.spec.nproc_per_node, 2) << "the operator overrides it";
  container["command"] = {"python", "run_glue.py", "--output_dir", "/o"};
  EXPECT_EQ(view_of(job).job.spec.nproc_per_node, 1);
  container["command"] = {"python", "train.py"};
  EXPECT_EQ(view_of(job).job.spec.nproc_per_node, 2) << "another program may read the variable";
  EXPECT_FALSE(view_of(job).trains_natively);
}

TEST(PyTorchView, HasTheOutputDirectoryOfTheJobsStart) {
  EXPECT_EQ(view_of(guide_job("")).traits.output_directory, "/disk/output_20260101_000000");
}

// The operator would otherwise give two jobs the same directory.
TEST(PyTorchView, LeavesAnOutputDirectoryThatOnlyThePodKnowsToTheWorker) {
  const json from_field = {{"name", "JOB"},
                           {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}};
  const json plain = {{"name", "JOB"}, {"value", "a"}};
  const auto directory_of = [](const std::vector<std::string>& command, const json& env,
                               const json& env_from = json::array()) {
    api::PyTorchJob job = viewed_job(1, true);
    job.metadata.creation_timestamp = kNow;
    json& container = job.spec.worker->pod_template["spec"]["containers"][0];
    container["command"] = command;
    container["env"] = env;
    container["envFrom"] = env_from;
    const JobView view = view_of(job);
    EXPECT_TRUE(view.trains_natively);
    return view.traits.output_directory;
  };
  const auto script = [](const std::string& directory) {
    return std::vector<std::string>{
        "bash", "-c",
        "torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR run_glue.py "
        "--model_name_or_path m --task_name mrpc --output_dir " +
            directory};
  };
  EXPECT_EQ(directory_of(script("/pvc/$JOB/$(date +%Y)"), json::array({plain})), "/pvc/a/2026");
  EXPECT_EQ(directory_of(script("/pvc/$JOB/$(date +%Y)"), json::array({from_field})), "");
  EXPECT_EQ(directory_of(script("/pvc/$JOB"), json::array({from_field})), "");
  EXPECT_EQ(directory_of(script("/pvc/$JOB/$(date +%Y)"), json::array({plain, from_field})), "")
      << "the last entry counts";
  EXPECT_EQ(directory_of(script("/pvc/$JOB/$(date +%Y)"), json::array({from_field, plain})),
            "/pvc/a/2026");
  const json config_map = {{"configMapRef", {{"name", "c"}}}};
  EXPECT_EQ(directory_of(script("/pvc/$JOB/o"), json::array()), "/pvc//o") << "it is not set";
  EXPECT_EQ(directory_of(script("/pvc/$JOB/o"), json::array(), json::array({config_map})), "");
  EXPECT_EQ(directory_of(script("/pvc/$JOB/o"), json::array({plain}), json::array({config_map})),
            "/pvc/a/o")
      << "env overrides envFrom";
  EXPECT_EQ(directory_of(script("/pvc/$HOSTNAME"), json::array()), "");
  EXPECT_EQ(directory_of({"python", "run_glue.py", "--model_name_or_path", "m", "--task_name",
                          "mrpc", "--output_dir", "/pvc/$(JOB)/$(date +%Y)"},
                         json::array({from_field})),
            "");
  const auto exec = [](const std::string& directory) {
    return std::vector<std::string>{"torchrun",
                                    "--nnodes=$(WORLD_SIZE)",
                                    "--node_rank=$(RANK)",
                                    "--master_addr=$(MASTER_ADDR)",
                                    "run_glue.py",
                                    "--model_name_or_path",
                                    "m",
                                    "--task_name",
                                    "mrpc",
                                    "--output_dir",
                                    directory};
  };
  EXPECT_EQ(directory_of(exec("/pvc/o"), json::array()), "/pvc/o");
  EXPECT_EQ(directory_of(exec("/pvc/$(JOB)"), json::array(), json::array({config_map})), "");
  EXPECT_EQ(directory_of(exec("/pvc/$(KUBERNETES_SERVICE_HOST)"), json::array()), "");
  const json out = {{"name", "OUT"}, {"value", "/pvc/$(JOB)"}};
  EXPECT_EQ(directory_of(exec("$(OUT)"), json::array({from_field, out})), "");
  EXPECT_EQ(directory_of(script("$OUT"), json::array({from_field, out})), "");
  EXPECT_EQ(directory_of(script("$OUT"), json::array({plain, out})), "/pvc/a");
  const json rank = {{"name", "RANK"}, {"value", "0"}};
  EXPECT_EQ(directory_of(script("/pvc/$RANK"), json::array({rank})), "")
      << "the operator overrides it";
}

TEST(PyTorchView, ACommandWhoseSizesOnlyThePodKnowsIsNotNative) {
  api::PyTorchJob job = guide_job("--per_device_train_batch_size $BATCH");
  json& container = job.spec.worker->pod_template["spec"]["containers"][0];
  container["envFrom"] = json::array({{{"configMapRef", {{"name", "sizes"}}}}});
  EXPECT_FALSE(view_of(job).trains_natively);
}

// A job that Kubeflow's operator has run must not run again.
TEST(PyTorchView, TakesOverAFinishedJob) {
  api::PyTorchJob job = viewed_job(1, false);
  job.status.completion_time = kNow;
  job.status.conditions = {
      {"Created", api::ConditionStatus::kTrue, "PyTorchJobCreated", "", kNow, kNow},
      {"Succeeded", api::ConditionStatus::kTrue, "PyTorchJobSucceeded", "done", kNow, kNow}};
  const api::TrainJobStatus status = view_of(job).job.status;
  EXPECT_EQ(status.phase, Phase::kSucceeded);
  EXPECT_EQ(status.completion_time, kNow);
}

std::vector<std::string> types(const api::PyTorchJobStatus& status) {
  std::vector<std::string> list;
  for (const api::PyTorchCondition& condition : status.conditions) {
    list.push_back(condition.type +
                   (condition.status == api::ConditionStatus::kTrue ? "" : "=False"));
  }
  return list;
}

// Runs the job through phases, as the policies would.
class Conditions : public ::testing::Test {
 protected:
  api::PyTorchJobStatus reach(Phase phase, const std::vector<policy::Worker>& workers = {}) {
    own_.phase = phase;
    if (phase == Phase::kSuspended) {
      policy::set_condition(own_, "Suspended", true, "Suspended", "suspended", 1, now_);
    } else if (own_.find_condition("Suspended") != nullptr) {
      policy::set_condition(own_, "Suspended", false, "Resumed", "resumed", 1, now_);
    }
    const std::string type(api::to_string(phase));
    policy::set_condition(own_, phase == Phase::kPending ? "Created" : type.c_str(), true, "Reason",
                          "in phase " + type, 1, now_);
    job_.status = status_of(job_, own_, workers, now_);
    now_ += seconds(10);
    return job_.status;
  }

  api::PyTorchJob job_ = viewed_job(2, true);
  api::TrainJobStatus own_;
  WallTime now_ = kNow;
};

TEST_F(Conditions, EndWithTheStateOfTheJob) {
  EXPECT_THAT(types(reach(Phase::kPending)), ElementsAre("Created"));
  EXPECT_THAT(types(reach(Phase::kRunning)), ElementsAre("Created", "Running"));
  EXPECT_THAT(types(reach(Phase::kRestarting)), ElementsAre("Created", "Restarting"));
  EXPECT_THAT(types(reach(Phase::kRunning)), ElementsAre("Created", "Running"));
  EXPECT_THAT(types(reach(Phase::kSuspended)),
              ElementsAre("Created", "Running=False", "Suspended"));
  const api::PyTorchJobStatus resuming = reach(Phase::kPending);
  EXPECT_THAT(types(resuming), ElementsAre("Suspended=False", "Running=False", "Created"));
  EXPECT_EQ(resuming.conditions[1].reason, "PyTorchJobSuspended") << "until the job runs";
  EXPECT_THAT(types(reach(Phase::kRunning)), ElementsAre("Created", "Suspended=False", "Running"));
  const api::PyTorchJobStatus done = reach(Phase::kSucceeded);
  EXPECT_THAT(types(done), ElementsAre("Created", "Suspended=False", "Running=False", "Succeeded"));
  EXPECT_EQ(done.conditions.back().reason, "PyTorchJobSucceeded");
  EXPECT_EQ(done.conditions.back().message, "in phase Succeeded");
  EXPECT_EQ(done.conditions[1].reason, "PyTorchJobResumed");
}

TEST_F(Conditions, KeepTheTimeOfTheirLastTransition) {
  reach(Phase::kPending);
  reach(Phase::kRunning);
  const api::PyTorchJobStatus later = reach(Phase::kRunning);
  EXPECT_EQ(later.conditions[0].last_transition_time, kNow);
  EXPECT_EQ(later.conditions[1].last_transition_time, kNow + seconds(10));
  EXPECT_EQ(later.conditions[1].last_update_time, kNow + seconds(10));
  EXPECT_EQ(later.last_reconcile_time, kNow + seconds(20));
}

policy::Worker worker(int index, policy::WorkerPhase phase) {
  policy::Worker made;
  made.index = index;
  made.phase = phase;
  return made;
}

TEST_F(Conditions, CountReplicasByType) {
  using policy::WorkerPhase;
  const auto running =
      reach(Phase::kRunning, {worker(0, WorkerPhase::kRunning), worker(1, WorkerPhase::kPending),
                              worker(2, WorkerPhase::kFailed)});
  EXPECT_EQ(running.replica_statuses.at("Master").active, 1);
  EXPECT_EQ(running.replica_statuses.at("Worker").active, 0);
  EXPECT_EQ(running.replica_statuses.at("Worker").failed, 1);
  EXPECT_EQ(running.replica_statuses.at("Worker").selector,
            "training.kubeflow.org/job-name=qa,"
            "training.kubeflow.org/operator-name=pytorchjob-controller,"
            "training.kubeflow.org/replica-type=worker");
  const auto done = reach(Phase::kSucceeded,
                          {worker(0, WorkerPhase::kSucceeded), worker(1, WorkerPhase::kRunning),
                           worker(2, WorkerPhase::kSucceeded)});
  EXPECT_EQ(done.replica_statuses.at("Master").succeeded, 1);
  EXPECT_EQ(done.replica_statuses.at("Worker").succeeded, 2) << "as Kubeflow's operator counts";
  EXPECT_EQ(done.replica_statuses.at("Worker").active, 0);
  const auto cleaned_up = reach(Phase::kSucceeded);
  EXPECT_EQ(cleaned_up.replica_statuses.at("Worker").succeeded, 2);
}

TEST_F(Conditions, CountWorkersThatHaveSucceededAndWhosePodsAreGone) {
  own_.succeeded_workers = {"qa-master-0", "qa-worker-0", "qa-worker-1"};
  policy::Worker existing = worker(1, policy::WorkerPhase::kSucceeded);
  existing.name = "qa-worker-0";
  const auto running = reach(Phase::kRunning, {existing});
  EXPECT_EQ(running.replica_statuses.at("Master").succeeded, 1);
  EXPECT_EQ(running.replica_statuses.at("Worker").succeeded, 2);
}

// The counts of Kubeflow's operator do not change any more after the end of the job, but for pods
// that have stopped.
TEST_F(Conditions, PodsThatTheCleanUpDeletesAreNoFailures) {
  using policy::WorkerPhase;
  const policy::Worker failed = worker(2, WorkerPhase::kFailed);
  const auto ended = reach(Phase::kFailed, {worker(1, WorkerPhase::kRunning), failed});
  EXPECT_EQ(ended.replica_statuses.at("Worker").active, 1);
  EXPECT_EQ(ended.replica_statuses.at("Worker").failed, 1);
  for (const WorkerPhase phase : {WorkerPhase::kRunning, WorkerPhase::kFailed}) {
    policy::Worker deleted = worker(1, phase);
    deleted.terminating = true;
    const auto cleaned_up = reach(Phase::kFailed, {deleted, failed});
    EXPECT_EQ(cleaned_up.replica_statuses.at("Worker").active, 0);
    EXPECT_EQ(cleaned_up.replica_statuses.at("Worker").failed, 1);
  }
}

TEST(KubeflowEvent, HasTheReasonOfKubeflow) {
  api::TrainJobStatus status;
  const auto reason = [&](const char* ours, const char* message = "m") {
    return kubeflow_event({true, ours, message}, status).reason;
  };
  EXPECT_EQ(reason("Running"), "PyTorchJobRunning");
  EXPECT_EQ(reason("WorkerFailed"), "PyTorchJobRestarting");
  EXPECT_EQ(reason("OutOfMemory"), "OutOfMemory") << "of the condition Blocked";
  policy::set_condition(status, "Failed", true, "DeadlineExceeded", "too late", 1, kNow);
  EXPECT_EQ(reason("DeadlineExceeded", "too late"), "PyTorchJobFailed");
  EXPECT_EQ(reason("WorkerFailed"), "WorkerFailed") << "it restarts nothing";
}

TEST(StatusLayout, AConditionHoldsTheStateWhereTheFieldIsDropped) {
  api::PyTorchJobStatus status;
  status.tilewright.restarts.program = 3;
  status.tilewright.failures.emplace_back().last_lines = {"a \xff byte"};
  status.conditions.push_back({"Running", api::ConditionStatus::kTrue, "r", "m", kNow, kNow});
  const json whole = encode_status(status, StatusLayout::kField);
  json stored = whole;
  EXPECT_FALSE(state_was_dropped(whole, stored));
  stored.erase("tilewright");
  EXPECT_TRUE(state_was_dropped(whole, stored));

  const json carried = encode_status(status, StatusLayout::kCondition);
  EXPECT_FALSE(carried.contains("tilewright"));
  ASSERT_EQ(carried["conditions"].size(), 2U);
  EXPECT_EQ(carried["conditions"][0]["type"], kStateCondition);
  EXPECT_EQ(carried["conditions"][1]["type"], "Running") << "what kubectl get shows";
  json object = {{"status", carried}};
  EXPECT_EQ(layout_of(carried), StatusLayout::kCondition);
  EXPECT_EQ(layout_of(whole), StatusLayout::kField);
  EXPECT_EQ(layout_of(json()), StatusLayout::kField) << "the job is new";
  restore_state(object);
  EXPECT_EQ(object["status"]["conditions"].size(), 1U);
  EXPECT_EQ(object["status"]["tilewright"]["restarts"]["program"], 3);
}

TEST(StatusLayout, AConditionThatIsNoJsonCountsAsAbsent) {
  json object = {
      {"status", {{"conditions", {{{"type", kStateCondition}, {"message", "{\"restarts\""}}}}}}};
  restore_state(object);
  EXPECT_FALSE(object["status"].contains("tilewright"));
  EXPECT_TRUE(object["status"]["conditions"].empty());
}

}  // namespace
}  // namespace tilewright::cluster
