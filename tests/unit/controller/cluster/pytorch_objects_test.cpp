// The Kubernetes objects of a PyTorchJob. Expected values are those of Kubeflow's training operator
// v1.9: pkg/controller.v1/pytorch/{envvar,master,elastic,hpa}.go and common/{pod,service}.go.
#include "controller/cluster/pytorch_objects.h"

#include <gmock/gmock.h>

#include <functional>

#include "common/contract/kubeflow.h"
#include "common/json/members.h"
#include "controller/api/training_container.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Pair;

json pod_template() {
  return json::parse(R"({
    "metadata": {"labels": {"team": "nlp", "training.kubeflow.org/job-name": "other"},
                 "annotations": {"note": "x"}},
    "spec": {
      "restartPolicy": "OnFailure",
      "nodeSelector": {"node-type": "spr"},
      "containers": [
        {"name": "logger", "image": "logger:1"},
        {"name": "pytorch", "image": "trainer:1", "command": ["torchrun", "run_qa.py"],
         "env": [{"name": "OMP_NUM_THREADS", "value": "56"}],
         "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
         "volumeMounts": [{"name": "data", "mountPath": "/tmp/pvc-mount"}]}],
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}})");
}

api::PyTorchReplicaSpec replica(std::int64_t replicas) {
  api::PyTorchReplicaSpec spec;
  spec.replicas = replicas;
  spec.restart_policy = api::RestartPolicy::kOnFailure;
  spec.pod_template = pod_template();
  return spec;
}

api::PyTorchJob job_of(std::int64_t workers, bool master) {
  api::PyTorchJob job;
  job.metadata.name = "qa";
  job.metadata.namespace_name = "team";
  job.metadata.uid = "0123456789";
  job.metadata.generation = 4;
  job.spec.nproc_per_node = "auto";
  if (master) job.spec.master = replica(1);
  if (workers > 0) job.spec.worker = replica(workers);
  return job;
}

const PodOptions kOptions = {"10.0.0.7:29400", "0a1b2c3d", {}};

json container(const json& pod, const std::string& name) {
  for (const json& each : pod["spec"]["containers"]) {
    if (each["name"] == name) return each;
  }
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> variables(const json& of) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const json& each : of["env"]) list.emplace_back(each["name"], each["value"]);
  return list;
}

TEST(PyTorchPod, HasTheVariablesOfAJobWithAMaster) {
  api::PyTorchJob job = job_of(2, true);
  job.spec.nproc_per_node = "4";
  EXPECT_THAT(variables(container(build_pod(job, 2, kOptions), "logger")),
              ElementsAre(Pair("PYTHONUNBUFFERED", "1"), Pair("MASTER_PORT", "23456"),
                          Pair("PET_MASTER_PORT", "23456"), Pair("MASTER_ADDR", "qa-master-0"),
                          Pair("PET_MASTER_ADDR", "qa-master-0"), Pair("WORLD_SIZE", "12"),
                          Pair("RANK", "2"), Pair("PET_NODE_RANK", "2"),
                          Pair("PET_NPROC_PER_NODE", "4"), Pair("PET_NNODES", "3")));
  EXPECT_THAT(variables(container(build_pod(job, 0, kOptions), "logger")),
              ::testing::IsSupersetOf({Pair("RANK", "0"), Pair("PET_NODE_RANK", "0")}));
}

TEST(PyTorchPod, HasTheVariablesOfAnElasticJob) {
  api::PyTorchJob job = job_of(4, false);
  api::PyTorchElasticPolicy& elastic = job.spec.elastic_policy.emplace();
  elastic.min_replicas = 1;
  elastic.max_replicas = 4;
  elastic.max_restarts = 10;
  EXPECT_THAT(
      variables(container(build_pod(job, 3, kOptions), "logger")),
      ElementsAre(Pair("PYTHONUNBUFFERED", "1"), Pair("PET_NPROC_PER_NODE", "auto"),
                  Pair("PET_RDZV_ENDPOINT", "qa-worker-0:23456"), Pair("PET_RDZV_BACKEND", "c10d"),
                  Pair("PET_NNODES", "1:4"), Pair("PET_MAX_RESTARTS", "10")));
  elastic.rdzv_backend = "etcd";
  elastic.rdzv_host = "store";
  elastic.rdzv_port = 2379;
  elastic.rdzv_id = "run-7";
  elastic.rdzv_conf = {{"timeout", "60"}, {"is_host", "0"}};
  elastic.standalone = true;
  elastic.nproc_per_node = 2;
  elastic.max_restarts.reset();
  job.spec.nproc_per_node.reset();
  EXPECT_THAT(
      variables(container(build_pod(job, 3, kOptions), "logger")),
      ElementsAre(Pair("PYTHONUNBUFFERED", "1"), Pair("PET_RDZV_ENDPOINT", "store:2379"),
                  Pair("PET_RDZV_BACKEND", "etcd"), Pair("PET_NNODES", "1:4"),
                  Pair("PET_NPROC_PER_NODE", "2"), Pair("PET_RDZV_ID", "run-7"),
                  Pair("PET_RDZV_CONF", "timeout=60,is_host=0"), Pair("PET_STANDALONE", "1")));
}

TEST(PyTorchPod, HasTheSizesOfANativeTraining) {
  api::PyTorchJob job = job_of(4, false);
  job.spec.elastic_policy.emplace().min_replicas = 1;
  job.spec.elastic_policy->max_replicas = 4;
  job.metadata.creation_timestamp = WallTime(std::chrono::seconds(1764000123));
  EXPECT_THAT(variables(container(build_pod(job, 0, kOptions), "pytorch")),
              ::testing::Contains(Pair("TILEWRIGHT_NOMINAL_WORKERS", "4")));
  json& command = job.spec.worker->pod_template["spec"]["containers"][1]["command"];
  command = {"torchrun", "run_qa.py", "--per_device_train_batch_size=1", "--output_dir",
             "/o/$(date +%s)"};
  EXPECT_THAT(variables(container(build_pod(job, 3, kOptions), "pytorch")),
              ::testing::IsSupersetOf({Pair("TILEWRIGHT_NOMINAL_WORKERS", "4"),
                                       Pair("TILEWRIGHT_VIRTUAL_SHARDS", "4"),
                                       Pair("TILEWRIGHT_OUTPUT_DIR", "/o/1764000123")}));
  // What the status holds is kept, whatever the template says later.
  job.status.tilewright.output_directory = "/o/1";
  job.status.tilewright.nominal_workers = 2;
  job.status.tilewright.virtual_shards = 2;
  job.spec.worker->replicas = 3;
  EXPECT_THAT(variables(container(build_pod(job, 2, kOptions), "pytorch")),
              ::testing::IsSupersetOf({Pair("TILEWRIGHT_NOMINAL_WORKERS", "2"),
                                       Pair("TILEWRIGHT_VIRTUAL_SHARDS", "2"),
                                       Pair("TILEWRIGHT_OUTPUT_DIR", "/o/1")}));
}

PodOptions options_with_store() {
  PodOptions options = kOptions;
  options.tcpstore = "10.96.0.7:29401";
  return options;
}

TEST(PyTorchPod, AgentsUseTheOperatorsStore) {
  api::PyTorchJob job = job_of(4, false);
  job.spec.elastic_policy.emplace();
  const json pod = build_pod(job, 3, options_with_store());
  EXPECT_THAT(
      variables(container(pod, "logger")),
      ElementsAre(Pair("PYTHONUNBUFFERED", "1"), Pair("PET_NPROC_PER_NODE", "auto"),
                  Pair("PET_RDZV_ENDPOINT", "10.96.0.7:29401"), Pair("PET_RDZV_BACKEND", "c10d"),
                  Pair("PET_NNODES", "1:1"), Pair("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")));
  EXPECT_THAT(variables(container(pod, "pytorch")),
              ::testing::IsSupersetOf({Pair("PET_RDZV_ENDPOINT", "10.96.0.7:29401"),
                                       Pair("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),
                                       Pair("TILEWRIGHT_RENDEZVOUS", "10.0.0.7:29400")}));
  EXPECT_EQ(pod["metadata"]["annotations"]["tilewright.dev/tcpstore"], "10.96.0.7:29401");
  job.spec.worker->pod_template["spec"]["containers"][1]["env"].push_back(
      {{"name", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}, {"value", "0"}});
  const auto list = variables(container(build_pod(job, 3, options_with_store()), "pytorch"));
  EXPECT_THAT(list, ::testing::Contains(Pair("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")));
  EXPECT_THAT(list,
              ::testing::Not(::testing::Contains(Pair("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"))));
}

TEST(PyTorchPod, AgentsHaveTheGracePeriodOfThePod) {
  api::PyTorchJob job = job_of(4, false);
  const auto list = [&] { return variables(container(build_pod(job, 3, kOptions), "pytorch")); };
  const auto key = ::testing::Key("PET_SHUTDOWN_TIMEOUT");
  EXPECT_THAT(list(), ::testing::Not(::testing::Contains(key)));
  json& spec = job.spec.worker->pod_template["spec"];
  spec["terminationGracePeriodSeconds"] = 300;
  EXPECT_THAT(list(), ::testing::Contains(Pair("PET_SHUTDOWN_TIMEOUT", "300")));
  spec["containers"][1]["env"].push_back({{"name", "PET_SHUTDOWN_TIMEOUT"}, {"value", "60"}});
  EXPECT_THAT(list(), ::testing::Contains(Pair("PET_SHUTDOWN_TIMEOUT", "60")));
  EXPECT_THAT(list(), ::testing::Not(::testing::Contains(Pair("PET_SHUTDOWN_TIMEOUT", "300"))));
}

// The interpretation of a command before its pod exists depends on it.
TEST(PyTorchPod, HasTheVariablesThatTheCommandMayReferTo) {
  const auto expect_same = [](const api::PyTorchJob& job, const PodOptions& options) {
    const json pytorch = container(build_pod(job, 1, options), "pytorch");
    for (const kubeflow::Variable& variable : kubeflow::kVariables) {
      const std::string name(variable.name);
      const api::SetByOperator set = api::set_by_operator(name, job.spec, *job.spec.worker);
      EXPECT_EQ(set != api::SetByOperator::kNo,
                !element_with(pytorch["env"], "name", name).is_null())
          << name;
      api::PyTorchJob given = job;
      given.spec.worker->pod_template["spec"]["containers"][1]["env"].push_back(
          {{"name", name}, {"value", "given"}});
      const auto list = variables(container(build_pod(given, 1, options), "pytorch"));
      std::string value;
      for (const auto& [each, last] : list) {
        if (each == name) value = last;
      }
      EXPECT_EQ(set == api::SetByOperator::kOverrides, value != "given") << name;
    }
    for (const auto& [name, value] : variables(pytorch)) {
      EXPECT_EQ(kubeflow::may_set(name), name != "OMP_NUM_THREADS") << name;
    }
  };
  api::PyTorchJob job = job_of(3, false);
  expect_same(job, kOptions);
  job.spec.worker->pod_template["spec"]["terminationGracePeriodSeconds"] = 300;
  expect_same(job, kOptions);
  job.spec.master = replica(1);
  expect_same(job, kOptions);
  api::PyTorchElasticPolicy& elastic = job.spec.elastic_policy.emplace();
  expect_same(job, options_with_store());
  elastic.max_restarts = 1;
  elastic.rdzv_id = "a";
  elastic.rdzv_conf = {{"timeout", "60"}};
  expect_same(job, options_with_store());
  EXPECT_EQ(api::set_by_operator("LOCAL_RANK", job.spec, *job.spec.worker),
            api::SetByOperator::kNo);
  EXPECT_EQ(api::set_by_operator("TILEWRIGHT_JOB_NAME", job.spec, *job.spec.worker),
            api::SetByOperator::kOverrides);
}

// The job sets the rendezvous endpoint, or torchrun's agents have no rendezvous.
TEST(PyTorchPod, AgentsUseTheEndpointOfTheJob) {
  const std::function<void(api::PyTorchJob&)> changes[] = {
      [](auto& job) { job.spec.elastic_policy.reset(); },
      [](auto& job) { job.spec.elastic_policy->rdzv_host = "qa-worker-0"; },
      [](auto& job) { job.spec.elastic_policy->rdzv_port = 29400; },
      [](auto& job) { job.spec.elastic_policy->rdzv_backend = "etcd"; },
      [](auto& job) { job.spec.worker->restart_policy = api::RestartPolicy::kNever; },
      [](auto& job) { job.spec.elastic_policy->standalone = true; },
      [](auto& job) { job.spec.worker->pod_template["spec"]["hostNetwork"] = true; }};
  for (const auto& change : changes) {
    api::PyTorchJob job = job_of(4, false);
    job.spec.elastic_policy.emplace();
    job.spec.worker->pod_template["metadata"]["annotations"]["tilewright.dev/tcpstore"] = "x";
    change(job);
    EXPECT_FALSE(uses_operator_tcpstore(job));
    json pod = build_pod(job, 3, options_with_store());
    EXPECT_FALSE(pod["metadata"]["annotations"].contains("tilewright.dev/tcpstore"));
    EXPECT_EQ(pod["spec"], build_pod(job, 3, kOptions)["spec"]) << "as without a store";
  }
}

TEST(PyTorchPod, TakesThePortFromTheTemplate) {
  api::PyTorchJob job = job_of(1, true);
  job.spec.master->pod_template["spec"]["containers"][1]["ports"] =
      json::parse(R"([{"name": "metrics", "containerPort": 9000},
                      {"name": "pytorchjob-port", "containerPort": 7777}])");
  EXPECT_THAT(variables(container(build_pod(job, 1, kOptions), "logger")),
              ::testing::Contains(Pair("MASTER_PORT", "7777")));
  EXPECT_EQ(build_service(job, 0)["spec"]["ports"],
            json::parse(R"([{"name": "metrics", "port": 9000},
                            {"name": "pytorchjob-port", "port": 7777}])"));
  EXPECT_EQ(container(build_pod(job, 1, kOptions), "pytorch")["ports"],
            json::parse(R"([{"name": "pytorchjob-port", "containerPort": 23456}])"));
}

TEST(PyTorchPod, HasTheLabelsOfBothOperators) {
  const json master = build_pod(job_of(2, true), 0, kOptions)["metadata"];
  EXPECT_EQ(master["name"], "qa-master-0");
  EXPECT_EQ(master["labels"]["training.kubeflow.org/operator-name"], "pytorchjob-controller");
  EXPECT_EQ(master["labels"]["training.kubeflow.org/job-name"], "qa") << "not the template's";
  EXPECT_EQ(master["labels"]["training.kubeflow.org/replica-type"], "master");
  EXPECT_EQ(master["labels"]["training.kubeflow.org/replica-index"], "0");
  EXPECT_EQ(master["labels"]["training.kubeflow.org/job-role"], "master");
  const json worker = build_pod(job_of(2, true), 2, kOptions)["metadata"];
  EXPECT_EQ(worker["name"], "qa-worker-1");
  EXPECT_EQ(worker["labels"]["training.kubeflow.org/replica-type"], "worker");
  EXPECT_EQ(worker["labels"]["training.kubeflow.org/replica-index"], "1");
  EXPECT_FALSE(worker["labels"].contains("training.kubeflow.org/job-role"));
  EXPECT_EQ(worker["labels"]["tilewright.dev/worker-index"], "2");
  EXPECT_EQ(worker["labels"]["tilewright.dev/job-uid"], "0123456789");
  EXPECT_EQ(worker["labels"]["team"], "nlp");
  EXPECT_FALSE(worker["labels"].contains("app.kubernetes.io/name")) << "the image is the user's";
  EXPECT_EQ(worker["annotations"]["note"], "x");
  EXPECT_EQ(worker["ownerReferences"],
            json::parse(R"([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "qa",
                             "uid": "0123456789", "controller": true,
                             "blockOwnerDeletion": true}])"));
  const json leader = build_pod(job_of(2, false), 0, kOptions)["metadata"];
  EXPECT_EQ(leader["labels"]["training.kubeflow.org/job-role"], "master") << "without a master";
}

// What the image of Tilewright's worker needs to join the rendezvous.
TEST(PyTorchPod, AddsTheRendezvousToTheContainerPytorchOnly) {
  const json pod = build_pod(job_of(2, true), 2, kOptions);
  const json trainer = container(pod, "pytorch");
  EXPECT_THAT(variables(trainer),
              ::testing::IsSupersetOf(
                  {Pair("OMP_NUM_THREADS", "56"), Pair("TILEWRIGHT_RENDEZVOUS", "10.0.0.7:29400"),
                   Pair("TILEWRIGHT_JOB_UID", "0123456789"), Pair("TILEWRIGHT_WORKER_INDEX", "2"),
                   Pair("TILEWRIGHT_METRICS_ADDRESS", ":9400"),
                   Pair("TILEWRIGHT_JOB_KEY_FILE", "/var/run/tilewright/job-key")}));
  EXPECT_EQ(trainer["volumeMounts"].size(), 2U);
  for (const auto& [name, value] : variables(container(pod, "logger"))) {
    EXPECT_FALSE(name.starts_with("TILEWRIGHT_")) << name;
  }
  EXPECT_FALSE(container(pod, "logger").contains("volumeMounts"));
  const json secret = build_secret(job_of(2, true), "ab", kOptions.key_id);
  const json volume = pod["spec"]["volumes"][1];
  EXPECT_EQ(volume["secret"]["secretName"], secret["metadata"]["name"]);
  EXPECT_EQ(secret["stringData"]["job-key"], "ab");
}

TEST(PyTorchPod, KeepsTheTemplate) {
  const json pod = build_pod(job_of(1, false), 0, kOptions);
  EXPECT_EQ(pod["spec"]["nodeSelector"]["node-type"], "spr");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never") << "the operator restarts";
  EXPECT_FALSE(pod["spec"].contains("initContainers"));
  EXPECT_FALSE(pod["spec"].contains("securityContext"));
  const json trainer = container(pod, "pytorch");
  EXPECT_EQ(trainer["terminationMessagePolicy"], "FallbackToLogsOnError");
  api::PyTorchJob job = job_of(1, false);
  job.spec.worker->pod_template["spec"]["containers"][1]["terminationMessagePolicy"] = "File";
  EXPECT_EQ(container(build_pod(job, 0, kOptions), "pytorch")["terminationMessagePolicy"], "File");
  EXPECT_EQ(trainer["command"], json({"torchrun", "run_qa.py"}));
  EXPECT_EQ(trainer["volumeMounts"][0]["mountPath"], "/tmp/pvc-mount");
}

TEST(PyTorchService, NamesOnePod) {
  const json service = build_service(job_of(2, true), 2);
  EXPECT_EQ(service["metadata"]["name"], "qa-worker-1");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true)
      << "no init container waits for the name of the master";
  EXPECT_EQ(service["spec"]["selector"],
            json::parse(R"({"training.kubeflow.org/operator-name": "pytorchjob-controller",
                            "training.kubeflow.org/job-name": "qa",
                            "training.kubeflow.org/replica-type": "worker",
                            "training.kubeflow.org/replica-index": "1"})"));
  EXPECT_EQ(service["spec"]["ports"],
            json::parse(R"([{"name": "pytorchjob-port", "port": 23456}])"));
}

TEST(PyTorchPodGroup, SumsTheResourcesOfTheMembers) {
  api::PyTorchJob job = job_of(3, true);
  job.spec.run_policy.scheduling_policy.emplace();
  policy::Gang gang;
  gang.min_member = 2;
  json group = build_pod_group(job, gang);
  EXPECT_EQ(group["apiVersion"], "scheduling.x-k8s.io/v1alpha1");
  EXPECT_EQ(group["spec"]["minMember"], 2);
  EXPECT_EQ(group["spec"]["minResources"], json::parse(R"({"cpu": "4", "memory": "2147483648"})"));
  EXPECT_EQ(build_pod(job, 1, kOptions)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"],
            "qa");
  job.spec.run_policy.scheduling_policy->min_resources = {{"cpu", "1"}};
  gang.priority_class = "high";
  gang.schedule_timeout_seconds = 300;
  EXPECT_EQ(build_pod_group(job, gang)["spec"]["scheduleTimeoutSeconds"], 300);
  job.spec.worker->pod_template["spec"]["schedulerName"] = "volcano";
  group = build_pod_group(job, gang);
  EXPECT_EQ(group["apiVersion"], "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(group["spec"]["minResources"], json::parse(R"({"cpu": "1"})"));
  EXPECT_EQ(group["spec"]["queue"], "default");
  EXPECT_EQ(group["spec"]["priorityClassName"], "high");
  gang.queue = "batch";
  EXPECT_EQ(build_pod_group(job, gang)["spec"]["queue"], "batch");
  const json pod = build_pod(job, 1, kOptions)["metadata"];
  EXPECT_EQ(pod["annotations"]["scheduling.k8s.io/group-name"], "qa");
  EXPECT_EQ(pod["annotations"]["volcano.sh/task-spec"], "worker");
}

// With --gang_scheduler_name the operator gives the job an empty schedulingPolicy.
TEST(PyTorchPodGroup, IsThatOfTheOperatorsGangScheduler) {
  api::PyTorchJob job = job_of(2, true);
  job.spec.run_policy.scheduling_policy.emplace();
  job.spec.worker->pod_template["spec"]["schedulerName"] = "other";
  PodOptions options = kOptions;
  options.gang_scheduler = "volcano";
  EXPECT_EQ(build_pod_group(job, {}, "volcano")["apiVersion"], "scheduling.volcano.sh/v1beta1");
  json master = build_pod(job, 0, options);
  EXPECT_EQ(master["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(master["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "qa");
  EXPECT_EQ(master["metadata"]["annotations"]["volcano.sh/task-spec"], "master");
  json worker = build_pod(job, 1, options);
  EXPECT_EQ(worker["spec"]["schedulerName"], "other") << "the template's";
  EXPECT_EQ(worker["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "qa");

  options.gang_scheduler = "scheduler-plugins-scheduler";
  job.spec.worker->pod_template["spec"]["schedulerName"] = "volcano";
  EXPECT_EQ(build_pod_group(job, {}, options.gang_scheduler)["apiVersion"],
            "scheduling.x-k8s.io/v1alpha1");
  master = build_pod(job, 0, options);
  EXPECT_EQ(master["spec"]["schedulerName"], "scheduler-plugins-scheduler");
  worker = build_pod(job, 1, options);
  EXPECT_EQ(worker["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(worker["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "qa");
  EXPECT_FALSE(worker["metadata"]["annotations"].contains("scheduling.k8s.io/group-name"));
}

TEST(PyTorchAutoscaler, ScalesTheJob) {
  api::PyTorchJob job = job_of(2, false);
  EXPECT_FALSE(has_autoscaler(job));
  api::PyTorchElasticPolicy& elastic = job.spec.elastic_policy.emplace();
  elastic.min_replicas = 1;
  elastic.max_replicas = 3;
  elastic.metrics = json::parse(R"([{"type": "Resource", "resource": {"name": "cpu"}}])");
  ASSERT_TRUE(has_autoscaler(job));
  const json spec = build_autoscaler(job)["spec"];
  EXPECT_EQ(
      spec["scaleTargetRef"],
      json::parse(R"({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "qa"})"));
  EXPECT_EQ(spec["minReplicas"], 1);
  EXPECT_EQ(spec["maxReplicas"], 3);
  EXPECT_EQ(spec["metrics"], elastic.metrics);
}

}  // namespace
}  // namespace tilewright::cluster
