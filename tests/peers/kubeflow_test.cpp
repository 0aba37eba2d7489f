// Runs Kubeflow's operator and then ours on the same PyTorchJobs, with Kubeflow's CRD, and compares
// the objects that both make (kubeflow_comparison.h). `kubeflow/run` builds the peer and starts
// this program, which writes the differences to TILEWRIGHT_PEER_RESULT.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <set>

#include "common/net/wait.h"
#include "tests/integration/controller_fixture.h"
#include "tests/peers/kubeflow_comparison.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

constexpr const char* kContainer = R"(
          - name: pytorch
            image: trainer:1
            command: [torchrun, /workspace/run_qa.py]
            env: [{name: OMP_NUM_THREADS, value: "56"}]
            resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 2, memory: 2Gi}}
            volumeMounts: [{name: dshm, mountPath: /dev/shm}]
          - {name: sidecar, image: sidecar:1}
          volumes: [{name: dshm, emptyDir: {medium: Memory}}]
          nodeSelector: {node-type: spr}
)";

std::string replica(const char* type, int replicas, const char* policy,
                    const std::string& scheduler = "") {
  return fmt::format(
      "    {}:\n      replicas: {}\n      restartPolicy: {}\n      template:\n"
      "        metadata: {{labels: {{team: nlp}}, annotations: {{note: x}}}}\n"
      "        spec:{}\n          containers:{}",
      type, replicas, policy, scheduler.empty() ? "" : "\n          schedulerName: " + scheduler,
      kContainer);
}
std::string run_policy(const std::string& fields) { return "  runPolicy: {" + fields + "}\n"; }
const std::string kSpecs = "  pytorchReplicaSpecs:\n";

// The type of the last condition, which `kubectl get` shows.
std::string state_of(const json& job) {
  const json conditions = job.value(json::json_pointer("/status/conditions"), json::array());
  return conditions.empty() ? "" : conditions.back()["type"].get<std::string>();
}
int sum_of(const json& job, const char* count) {
  int sum = 0;
  const json statuses = job.value(json::json_pointer("/status/replicaStatuses"), json::object());
  for (const auto& [type, counts] : statuses.items()) sum += counts.value(count, 0);
  return sum;
}
int replicas_of(const json& job) {
  int replicas = 0;
  for (const auto& [type, spec] : job["spec"]["pytorchReplicaSpecs"].items()) {
    replicas += spec.value("replicas", 1);
  }
  return replicas;
}

// A namespace whose jobs one of the operators runs, with a node and a stand-in for Volcano, which
// admits every PodGroup.
class Side {
 public:
  Side(ControlPlane& plane, kube::Client& client, const std::string& namespace_name, bool is_ours)
      : ours(is_ours),
        space(namespace_name),
        admin(plane.admin()),
        node(plane, client, namespace_name, "node-" + namespace_name),
        jobs(client, controller::resource::pytorch_jobs(), namespace_name),
        scheduler_(plane.client({plane.admin_certificate(), ""})),
        groups_(client, {"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"},
                namespace_name,
                [this](const std::string& name, const json& group) { admit(name, group); }) {}

  std::string path(const char* api, const char* plural, const std::string& name = "") const {
    return fmt::format("{}/namespaces/{}/{}{}{}", api, space, plural, name.empty() ? "" : "/",
                       name);
  }

  const bool ours;
  const std::string space;
  HttpsClient& admin;
  FakeNode node;
  ObjectWatch jobs;
  Snapshots snapshots;

 private:
  void admit(const std::string& name, const json& group) {
    if (group.is_null() || group.contains(json::json_pointer("/status/phase"))) return;
    scheduler_->merge_patch(path("/apis/scheduling.volcano.sh/v1beta1", "podgroups", name),
                            {{"status", {{"phase", "Inqueue"}}}});
  }

  std::unique_ptr<HttpsClient> scheduler_;
  ObjectWatch groups_;  // last: its thread uses the others
};

// One job, step by step.
class JobRun {
 public:
  JobRun(Side& side, std::string name) : side_(side), name_(std::move(name)) {}
  bool ours() const { return side_.ours; }

  void create(const std::string& spec, const std::string& metadata) {
    const HttpResponse made = side_.admin.post(
        jobs_path(), parse_yaml(fmt::format(
                         "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: {}{}}}\n"
                         "spec:\n{}",
                         name_, metadata, spec)));
    ASSERT_EQ(made.status, 201) << made.message();
  }
  void change(const json& patch) {
    const HttpResponse changed = side_.admin.merge_patch(jobs_path(name_), patch);
    EXPECT_TRUE(changed.ok()) << changed.message();
  }
  void suspend(bool value) { change({{"spec", {{"runPolicy", {{"suspend", value}}}}}}); }

  void await(const char* what, const std::function<bool(const json&)>& holds) {
    const bool came = side_.jobs.wait_until([&](const ObjectWatch::Objects& all) {
      const auto job = all.find(name_);
      return job != all.end() && holds(job->second);
    });
    EXPECT_TRUE(came) << (ours() ? "ours: " : "Kubeflow's: ") << name_ << " does not become "
                      << what << ": " << side_.jobs.objects()[name_].dump(1);
  }
  void await_state(const char* state) {
    await(state, [&](const json& job) { return state_of(job) == state; });
  }
  // All replicas are active, and none counts as failed any more.
  void await_running() {
    await("Running", [](const json& job) {
      return state_of(job) == "Running" && sum_of(job, "active") == replicas_of(job) &&
             sum_of(job, "failed") == 0;
    });
  }
  void await_deletion() {
    EXPECT_TRUE(side_.jobs.wait_until([&](const ObjectWatch::Objects& all) {
      return !all.contains(name_);
    })) << name_;
  }

  std::string pod(const std::string& replica) const { return name_ + "-" + replica; }
  std::string uid(const std::string& replica) {
    return side_.node.pods().objects()[pod(replica)]["metadata"]["uid"];
  }
  void end(const std::string& replica, int exit_code) {
    side_.node.end_container(pod(replica), exit_code);
  }
  void succeed() {
    for (const auto& [name, pod] : own_pods()) {
      if (pod["status"].value("phase", "") == "Running") side_.node.end_container(name, 0);
    }
  }
  // Fails a container whose pod Kubeflow's operator creates with the restartPolicy OnFailure: the
  // kubelet restarts it. Ours replaces the pod.
  void fail_on_failure(const std::string& replica) {
    if (ours()) return end(replica, 1);
    json status = side_.node.pods().objects()[pod(replica)]["status"];
    json& restarts = status["containerStatuses"][0]["restartCount"];
    restarts = restarts.get<int>() + 1;
    const HttpResponse set =
        side_.admin.merge_patch(side_.path("/api/v1", "pods", pod(replica)) + "/status",
                                {{"status", {{"containerStatuses", status["containerStatuses"]}}}});
    EXPECT_TRUE(set.ok()) << set.message();
    const bool seen = side_.node.pods().wait_until([&](const ObjectWatch::Objects& pods) {
      return pods.at(pod(replica))["status"]["containerStatuses"] == status["containerStatuses"];
    });
    EXPECT_TRUE(seen);
  }
  void await_new_pod(const std::string& replica, const std::string& old_uid, const char* phase) {
    const bool came = side_.node.pods().wait_until([&](const ObjectWatch::Objects& pods) {
      const auto found = pods.find(pod(replica));
      return found != pods.end() && found->second["metadata"]["uid"] != old_uid &&
             found->second["status"].value("phase", "") == phase &&
             !found->second["spec"].value("nodeName", "").empty();
    });
    EXPECT_TRUE(came) << pod(replica);
  }
  // Nothing is left but the job.
  void await_suspended() {
    await("Suspended", [](const json& seen) {
      return state_of(seen) == "Suspended" && sum_of(seen, "active") == 0 &&
             sum_of(seen, "failed") == 0;
    });
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (objects().size() > 1 && std::chrono::steady_clock::now() < deadline) {
      net::sleep_until(net::within(std::chrono::milliseconds(50)));
    }
  }
  void hold_containers() { side_.node.hold_containers(true); }
  void start_containers() {
    side_.node.hold_containers(false);
    side_.node.start_containers();
  }
  // Kubeflow's operator creates pods again that it has deleted at a limit, if they are gone before
  // its cache shows the end of the job. Kubelets need longer than that.
  void fail_at_limit(const std::function<void()>& reach_limit) {
    side_.node.hold_deletions(true);
    reach_limit();
    await_state("Failed");
    side_.node.hold_deletions(false);
    side_.node.finish_deletions();
  }
  // Sets activeDeadlineSeconds to some seconds from now, and waits until it has passed.
  void pass_deadline() {
    constexpr std::chrono::seconds kLeft{5};
    const json job = side_.jobs.objects()[name_];
    const auto start = parse_timestamp(job["status"]["startTime"].get<std::string>());
    const auto limit = std::chrono::ceil<std::chrono::seconds>(wall_now() - *start + kLeft);
    change({{"spec", {{"runPolicy", {{"activeDeadlineSeconds", limit.count()}}}}}});
    while (wall_now() < *start + limit + std::chrono::seconds(1)) {
      net::sleep_until(net::within(std::chrono::milliseconds(100)));
    }
  }
  std::string state() { return state_of(side_.jobs.objects()[name_]); }

  // Adds the job's objects to the comparison.
  void record(const std::string& stage) {
    for (json& object : objects()) {
      const std::string name = fmt::format("{} {}:{}", object["kind"].get<std::string>(), stage,
                                           object["metadata"]["name"].get<std::string>());
      side_.snapshots[name] = normalized(std::move(object), side_.space);
    }
  }
  // When the operator has done all for the job: the pods that it deletes are gone. Ours counts them
  // again then.
  void record_final() {
    EXPECT_TRUE(side_.node.pods().wait_until([&](const ObjectWatch::Objects& pods) {
      for (const auto& [name, pod] : own_of(pods)) {
        if (pod["metadata"].contains("deletionTimestamp")) return false;
      }
      return true;
    })) << name_;
    if (ours() && side_.jobs.objects().contains(name_)) {
      await("counted", [&](const json& job) {
        int running = 0;
        for (const auto& [name, pod] : own_pods()) {
          running += pod["status"].value("phase", "") == "Running" ? 1 : 0;
        }
        return state_of(job) == "Succeeded" || sum_of(job, "active") == running;
      });
    }
    record("final");
  }

 private:
  std::string jobs_path(const std::string& name = "") const {
    return side_.path("/apis/kubeflow.org/v1", "pytorchjobs", name);
  }
  ObjectWatch::Objects own_pods() const { return own_of(side_.node.pods().objects()); }
  ObjectWatch::Objects own_of(const ObjectWatch::Objects& pods) const {
    ObjectWatch::Objects own;
    for (const auto& [name, pod] : pods) {
      if (pod["metadata"]["labels"].value("training.kubeflow.org/job-name", "") == name_) {
        own[name] = pod;
      }
    }
    return own;
  }
  // The job and what belongs to it.
  std::vector<json> objects() const {
    std::vector<json> all;
    const std::string selector = "?labelSelector=training.kubeflow.org/job-name=" + name_;
    for (const auto& [plural, kind] : {std::pair{"pods", "Pod"}, {"services", "Service"}}) {
      const HttpResponse found = side_.admin.get(side_.path("/api/v1", plural) + selector);
      EXPECT_TRUE(found.ok()) << found.message();
      const json list = found.json();
      for (json each : list["items"]) {
        each["kind"] = kind;
        all.push_back(std::move(each));
      }
    }
    for (const auto& [api, plural] : {std::pair{"/apis/autoscaling/v2", "horizontalpodautoscalers"},
                                      {"/apis/scheduling.x-k8s.io/v1alpha1", "podgroups"},
                                      {"/apis/scheduling.volcano.sh/v1beta1", "podgroups"},
                                      {"/apis/kubeflow.org/v1", "pytorchjobs"}}) {
      const HttpResponse found = side_.admin.get(side_.path(api, plural, name_));
      if (found.ok()) all.push_back(found.json());
    }
    return all;
  }

  Side& side_;
  const std::string name_;
};

struct Case {
  std::string name;
  std::string spec;
  std::function<void(JobRun&)> script;
  std::string metadata;  // ", annotations: {...}"
};

void succeeds(JobRun& job) {
  job.await_running();
  job.record("running");
  job.succeed();
  job.await_state("Succeeded");
}

void is_suspended(JobRun& job) {
  job.await_running();
  job.record("running");
  job.suspend(true);
  job.await_suspended();
  job.record("suspended");
  job.suspend(false);
  job.await_running();
  job.succeed();
  job.await_state("Succeeded");
}

// Worker 1 ends with exit code 1, which ends the job.
void fails(JobRun& job) {
  job.await_running();
  job.end("worker-1", 1);
  job.await_state("Failed");
}

void one_of_each_fails(JobRun& job) {
  job.await_running();
  job.end("worker-2", 0);
  job.await("1 succeeded", [](const json& seen) { return sum_of(seen, "succeeded") == 1; });
  job.end("worker-1", 1);
  job.await_state("Failed");
}

std::vector<Case> cases() {
  const auto workers = [](int replicas, const char* policy) {
    return kSpecs + replica("Worker", replicas, policy);
  };
  const std::string master_and_workers =
      kSpecs + replica("Master", 1, "OnFailure") + replica("Worker", 2, "OnFailure");
  return {
      {"guide",
       "  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 4, maxRestarts: 10}\n" +
           workers(2, "OnFailure"),
       succeeds, ""},
      {"elastic",
       "  elasticPolicy:\n    {rdzvBackend: etcd, rdzvHost: store, rdzvPort: 2379, rdzvId: run-7, "
       "minReplicas: 1, maxReplicas: 3, nProcPerNode: 2, standalone: true,\n     rdzvConf: [{key: "
       "timeout, value: '60'}, {key: is_host, value: '0'}]}\n" +
           workers(2, "ExitCode"),
       succeeds, ""},
      {"bounds", "  elasticPolicy: {maxReplicas: 2}\n" + workers(2, "Never"), succeeds, ""},
      {"metrics",
       "  elasticPolicy:\n    minReplicas: 1\n    maxReplicas: 3\n    metrics:\n    - type: "
       "Resource\n      resource: {name: cpu, target: {type: Utilization, averageUtilization: "
       "80}}\n" +
           workers(1, "OnFailure"),
       is_suspended, ""},
      {"master", master_and_workers, succeeds, ""},
      {"nproc",
       "  nprocPerNode: '4'\n" + kSpecs + replica("Master", 1, "Always") +
           replica("Worker", 1, "Always"),
       succeeds, ""},
      {"alone", kSpecs + replica("Master", 1, "Never"), succeeds, ""},
      {"never", workers(2, "Never"), fails, ""},
      {"permanent", workers(2, "ExitCode"), fails, ""},
      {"permanent-ttl", run_policy("ttlSecondsAfterFinished: 1") + workers(2, "ExitCode"),
       [](JobRun& job) {
         fails(job);
         if (job.ours()) job.await_deletion();
       },
       ""},
      {"no-retries", run_policy("backoffLimit: 0") + workers(2, "ExitCode"),
       [](JobRun& job) {
         job.await_running();
         job.fail_at_limit([&] { job.end("worker-1", 130); });
       },
       ""},
      // As soon as another pod runs, Kubeflow's operator shows the job as Running.
      {"retry", run_policy("backoffLimit: 3") + workers(2, "ExitCode"),
       [](JobRun& job) {
         job.await_running();
         const std::string old = job.uid("worker-1");
         job.hold_containers();
         job.end("worker-1", 130);
         job.await_new_pod("worker-1", old, "Pending");
         job.await("restarting", [&](const json& seen) {
           return state_of(seen) == (job.ours() ? "Restarting" : "Running") &&
                  sum_of(seen, "active") == 1 && sum_of(seen, "failed") == 0;
         });
         job.record("restarting");
         job.start_containers();
         job.await_running();
         job.record("restarted");
         job.succeed();
         job.await_state("Succeeded");
       },
       ""},
      {"retry-alone", workers(1, "ExitCode"),
       [](JobRun& job) {
         job.await_running();
         const std::string old = job.uid("worker-0");
         job.hold_containers();
         job.end("worker-0", 255);
         job.await_new_pod("worker-0", old, "Pending");
         job.await("restarting", [](const json& seen) {
           return state_of(seen) == "Restarting" && sum_of(seen, "failed") == 0;
         });
         job.record("restarting");
         job.start_containers();
         succeeds(job);
       },
       ""},
      // Kubeflow's operator ends the job with the restart whose number is the limit.
      {"budget", run_policy("backoffLimit: 2") + workers(2, "OnFailure"),
       [](JobRun& job) {
         job.await_running();
         for (int restart = 0; restart < (job.ours() ? 2 : 1); ++restart) {
           const std::string old = job.uid("worker-1");
           job.fail_on_failure("worker-1");
           if (job.ours()) job.await_new_pod("worker-1", old, "Running");
           job.await_running();
           if (restart == 0) job.record("restarted");
         }
         job.fail_at_limit([&] { job.fail_on_failure("worker-1"); });
       },
       ""},
      {"suspended", workers(2, "OnFailure"),
       [](JobRun& job) {
         job.await_running();
         job.suspend(true);
         job.await_suspended();
         job.record("suspended");
         job.hold_containers();
         job.suspend(false);
         for (const char* worker : {"worker-0", "worker-1"}) {
           job.await_new_pod(worker, "", "Pending");
         }
         job.await("resumed", [](const json& seen) {
           for (const json& condition : seen["status"]["conditions"]) {
             if (condition["type"] == "Suspended") return condition["status"] == "False";
           }
           return false;
         });
         job.record("resuming");
         job.start_containers();
         succeeds(job);
       },
       ""},
      // As Kueue creates its jobs.
      {"queued", run_policy("suspend: true") + workers(2, "OnFailure"),
       [](JobRun& job) {
         job.await_state("Suspended");
         job.record("queued");
         job.suspend(false);
         succeeds(job);
       },
       ""},
      // Kubeflow's operator notices the deadline with the next change of the job.
      {"deadline", workers(2, "OnFailure"),
       [](JobRun& job) {
         job.await_running();
         job.end("worker-1", 0);
         job.await("1 succeeded", [](const json& seen) { return sum_of(seen, "succeeded") == 1; });
         job.fail_at_limit([&] {
           job.pass_deadline();
           if (job.ours()) return;
           EXPECT_EQ(job.state(), "Running");
           job.change({{"metadata", {{"annotations", {{"touched", "yes"}}}}}});
         });
       },
       ""},
      {"ttl", run_policy("ttlSecondsAfterFinished: 1") + workers(1, "OnFailure"),
       [](JobRun& job) {
         job.await_running();
         job.succeed();
         job.await_deletion();
       },
       ""},
      {"clean-none", run_policy("cleanPodPolicy: None") + workers(3, "Never"), one_of_each_fails,
       ""},
      {"clean-running", run_policy("cleanPodPolicy: Running") + workers(3, "Never"),
       one_of_each_fails, ""},
      {"clean-all", run_policy("cleanPodPolicy: All") + workers(3, "Never"), one_of_each_fails, ""},
      // The second worker still runs when the job succeeds, with ours after 30 s.
      {"clean-master", run_policy("cleanPodPolicy: Running") + master_and_workers,
       [](JobRun& job) {
         job.await_running();
         job.end("worker-0", 0);
         job.await("1 succeeded", [](const json& seen) { return sum_of(seen, "succeeded") == 1; });
         job.end("master-0", 0);
         job.await_state("Succeeded");
       },
       ""},
      {"managed", run_policy("managedBy: kueue.x-k8s.io/multikueue") + workers(1, "OnFailure"),
       [](JobRun&) {}, ""},
  };
}

// `prefix`: of the names.
std::vector<Case> gang_cases(const std::string& prefix, const std::string& scheduler) {
  const auto with_policy = [](const std::string& fields) {
    return run_policy("schedulingPolicy: {" + fields + "}");
  };
  return {
      {prefix + "-gang",
       with_policy("minAvailable: 2, queue: q, priorityClass: high, scheduleTimeoutSeconds: 60, "
                   "minResources: {cpu: '3'}") +
           kSpecs + replica("Worker", 3, "OnFailure", scheduler),
       succeeds, ""},
      {prefix + "-annotated",
       with_policy("queue: q") + kSpecs + replica("Master", 1, "OnFailure", scheduler) +
           replica("Worker", 2, "OnFailure", scheduler),
       is_suspended, ", annotations: {owner: nlp}"},
      // A manifest that names neither a policy nor a scheduler.
      {prefix + "-no-policy",
       kSpecs + replica("Master", 1, "OnFailure") + replica("Worker", 2, "OnFailure"), is_suspended,
       ""},
      {prefix + "-no-scheduler", with_policy("") + kSpecs + replica("Worker", 1, "OnFailure"),
       succeeds, ""},
      {prefix + "-other-scheduler",
       kSpecs + replica("Master", 1, "OnFailure") + replica("Worker", 1, "OnFailure", "other"),
       succeeds, ""},
  };
}

class KubeflowPeerTest : public ControllerTest {
 protected:
  void SetUp() override {
    peer_ = variable("TILEWRIGHT_KUBEFLOW_PEER");
    if (peer_.empty()) {
      GTEST_SKIP() << "TILEWRIGHT_KUBEFLOW_PEER is not set; run tests/peers/kubeflow/run";
    }
    ControllerTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    for (const auto& [file, name] :
         {std::pair{"TILEWRIGHT_KUBEFLOW_CRD", "pytorchjobs.kubeflow.org"},
          {"TILEWRIGHT_PODGROUP_CRD", "podgroups.scheduling.x-k8s.io"}}) {
      const HttpResponse made = admin().post(kCrdsPath, parse_yaml(read_text(variable(file))));
      ASSERT_EQ(made.status, 201) << made.message();
      const CommandResult waited = control_plane().wait_for_crd(name);
      ASSERT_EQ(waited.exit_code, 0) << waited.error;
    }
    // Its Go module has the types, but no CRD.
    install_permissive_crd("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup");
    setenv("KUBECONFIG", kubeconfig_.c_str(), 1);
  }
  void TearDown() override {
    peer_process_.reset();
    ControllerTest::TearDown();
  }
  static std::string variable(const char* name) {
    const char* value = getenv(name);
    return value == nullptr ? "" : value;
  }

  // With its log in a file: it is longer than a pipe holds.
  void start_peer(const std::string& gang_scheduler) {
    peer_process_ = std::make_unique<RunningProgram>(
        "/bin/sh",
        std::vector<std::string>{"-c", "exec \"$0\" $1 >>kubeflow.log 2>&1", peer_, gang_scheduler},
        control_plane().folder());
  }
  void stop_peer() {
    peer_process_->send(SIGKILL);
    (void)peer_process_->wait();
    peer_process_.reset();
  }

  void run(const std::vector<Case>& list, const std::string& suffix, bool ours, Snapshots& all) {
    const std::string space = namespace_ + suffix;
    ASSERT_TRUE(admin().post("/api/v1/namespaces", {{"metadata", {{"name", space}}}}).ok());
    Side side(control_plane(), *client_, space, ours);
    for (const Case& each : list) {
      SCOPED_TRACE(fmt::format("{} with {}", each.name, ours ? "ours" : "Kubeflow's"));
      JobRun job(side, each.name);
      ASSERT_NO_FATAL_FAILURE(job.create(each.spec, each.metadata));
      each.script(job);
    }
    // The operators take jobs in order: when this one runs, they are done with the others.
    JobRun last(side, "last");
    ASSERT_NO_FATAL_FAILURE(last.create(kSpecs + replica("Worker", 1, "Never"), ""));
    last.await_running();
    for (const Case& each : list) JobRun(side, each.name).record_final();
    // The next operator must not find these jobs.
    admin().remove("/apis/kubeflow.org/v1/namespaces/" + space + "/pytorchjobs");
    all.merge(side.snapshots);
  }

  std::string peer_;
  std::unique_ptr<RunningProgram> peer_process_;
};

TEST_F(KubeflowPeerTest, MakesTheSameObjectsButForTheIntendedDifferences) {
  struct Run {
    const char* name;
    const char* gang_scheduler;  // --gang-scheduler-name of both operators
    std::vector<Case> cases;
  };
  const std::string plugins = "scheduler-plugins-scheduler";
  const std::vector<Run> runs = {{"plain", "", cases()},
                                 {"plugins", plugins.c_str(), gang_cases("plugins", plugins)},
                                 {"volcano", "volcano", gang_cases("volcano", "volcano")}};
  Snapshots theirs, ours;
  std::size_t jobs = 0;
  for (const Run& each : runs) {
    start_peer(each.gang_scheduler);
    ASSERT_NO_FATAL_FAILURE(run(each.cases, std::string("-theirs-") + each.name, false, theirs));
    stop_peer();
    jobs += each.cases.size();
  }
  watch_all_namespaces_ = true;
  for (const Run& each : runs) {
    std::vector<std::string> flags = kNoLeaderElection;
    flags.emplace_back("--enable_pytorchjobs");
    if (*each.gang_scheduler != '\0') {
      flags.push_back(std::string("--gang-scheduler-name=") + each.gang_scheduler);
    }
    start_controller("", flags);
    ASSERT_NO_FATAL_FAILURE(run(each.cases, std::string("-ours-") + each.name, true, ours));
    controllers_.clear();
  }
  Comparison comparison;
  comparison.compare(theirs, ours);
  const std::string result = variable("TILEWRIGHT_PEER_RESULT");
  if (result.empty()) return;
  std::ofstream out(result);
  comparison.write_report(out, jobs);
}

}  // namespace
}  // namespace tilewright::testing
