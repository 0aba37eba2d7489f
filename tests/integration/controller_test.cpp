// Tests of the controller on an API server: pods, owned resources, status, events, policies.
#include <fstream>

#include "tests/integration/controller_fixture.h"
#include "tests/support/kubeconfig.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// The duration of a job whose deadline fires by a timer, on a busy machine. A resync comes after
// ten minutes.
constexpr std::chrono::seconds kWithoutResync{60};

TEST_F(ControllerTest, RunsAJobToSuccess) {
  start_controller();
  const json made = create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_EQ(job()["status"]["summary"]["ready"], "2/2");
  EXPECT_TRUE(is_true(job(), "Running"));

  const auto pods = node_->pods().objects();
  ASSERT_THAT(pods, SizeIs(2));
  for (const auto& [name, pod] : pods) {
    const json owner = pod["metadata"]["ownerReferences"][0];
    EXPECT_EQ(owner["uid"], made["metadata"]["uid"]);
    EXPECT_EQ(owner["controller"], true);
    EXPECT_EQ(pod["status"]["qosClass"], "Guaranteed");
    EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  }
  const std::string core = "/api/v1/namespaces/" + namespace_;
  EXPECT_EQ(admin().get(core + "/services/mrpc").json()["spec"]["clusterIP"], "None");
  EXPECT_TRUE(job_key_of("mrpc-worker-0").is_string());
  EXPECT_TRUE(admin()
                  .get(fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc",
                                   namespace_))
                  .ok());

  node_->succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_TRUE(is_true(job(), "Succeeded"));
  EXPECT_EQ(job()["status"]["replicas"]["succeeded"], 2);
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

TEST_F(ControllerTest, WarnsAboutFractionalCpus) {
  ObjectWatch events(*client_, kube::resource::events(), namespace_);
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: 500m");
  create_job(manifest);
  EXPECT_TRUE(events.wait_until([](const Objects& all) {
    return std::ranges::any_of(all, [](const auto& one) {
      const json& event = one.second;
      return event["reason"] == "ValidationWarning" && event["type"] == "Warning" &&
             event["note"].template get<std::string>().find("expected an integer: the kubelet") !=
                 std::string::npos;
    });
  }));
  ASSERT_TRUE(phase_becomes("Running"));
}

TEST_F(ControllerTest, CountsAFailureAndRestartsThatWorker) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  node_->end_container("mrpc-worker-1", 139, "Error", "a last line\nof the log");
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["restarts"]["program"] == 1 && phase_of(job) == "Running";
  }));
  ASSERT_TRUE(wait_for_live_pods(2));
  const auto after = live_pods();
  EXPECT_EQ(after.at("mrpc-worker-0"), before.at("mrpc-worker-0")) << "worker 0 did not fail";
  EXPECT_NE(after.at("mrpc-worker-1"), before.at("mrpc-worker-1"));
  const json failure = job()["status"]["failures"][0];
  EXPECT_EQ(failure["podUID"], before.at("mrpc-worker-1"));
  EXPECT_EQ(failure["signal"], 11);
  EXPECT_EQ(failure["node"], "node-" + namespace_);
  EXPECT_EQ(failure["lastLines"], json({"a last line", "of the log"}));
}

// A user of another namespace creates pods with the labels and the owner reference of the job.
TEST_F(ControllerTest, IgnoresPodsOfAnotherNamespaceThatNameTheJobAsOwner) {
  watch_all_namespaces_ = true;
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  const std::string stranger = namespace_ + "-stranger";
  ASSERT_TRUE(admin().post("/api/v1/namespaces", {{"metadata", {{"name", stranger}}}}).ok());
  const std::string pods = fmt::format("/api/v1/namespaces/{}/pods", stranger);
  for (const auto& [name, worker] : node_->pods().objects()) {
    const json copy = {{"metadata",
                        {{"name", name},
                         {"labels", worker["metadata"]["labels"]},
                         {"ownerReferences", worker["metadata"]["ownerReferences"]}}},
                       {"spec", worker["spec"]}};
    const HttpResponse made = admin().post(pods, copy);
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(admin()
                    .merge_patch(fmt::format("{}/{}/status", pods, name),
                                 {{"status", {{"phase", "Succeeded"}}}})
                    .ok());
  }
  // The controller sees this later event after those of the other namespace.
  node_->end_container("mrpc-worker-1", 139, "Error");
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["restarts"]["program"] == 1 && phase_of(job) == "Running";
  }));
  ASSERT_TRUE(wait_for_live_pods(2));
  EXPECT_EQ(live_pods().at("mrpc-worker-0"), before.at("mrpc-worker-0"));
}

// As large and as deep as the API server stores them.
TEST_F(ControllerTest, RunsAJobBesideOnesThatAreTooLargeOrTooDeep) {
  json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = {{"a", std::move(deep)}};
  const std::pair<const char*, json> jobs[] = {{"deep", std::move(deep)},
                                               {"large", std::string(1'400'000, 'x')}};
  for (const auto& [name, value] : jobs) {
    json job = parse_yaml(kControllerJob);
    job["metadata"]["name"] = name;
    job["spec"]["worker"]["podTemplate"]["spec"]["unknown"] = value;
    const HttpResponse made = admin().post(jobs_path(), job);
    ASSERT_EQ(made.status, 201) << made.message();
  }
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  for (const auto& [name, value] : jobs) {
    EXPECT_TRUE(
        job_becomes([](const json& job) { return is_true(job, "Blocked", "InvalidSpec"); }, name));
  }
}

TEST_F(ControllerTest, ReplacesADeletedPodWithoutConsumingRestarts) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  ASSERT_TRUE(
      admin().remove(fmt::format("/api/v1/namespaces/{}/pods/mrpc-worker-0", namespace_)).ok());
  ASSERT_TRUE(job_becomes(
      [](const json& job) { return job["status"]["restarts"]["infrastructure"] == 1; }));
  ASSERT_TRUE(node_->pods().wait_until([&](const Objects& pods) {
    const auto pod = pods.find("mrpc-worker-0");
    return pod != pods.end() && pod->second["metadata"]["uid"] != before.at("mrpc-worker-0") &&
           pod->second["status"].value("phase", "") == "Running";
  }));
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_EQ(job()["status"]["restarts"]["program"], 0);
}

TEST_F(ControllerTest, FailsTheJobOnAPermanentExitCode) {
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("    replicas: 2"), 15,
                   "    restartPolicy: ExitCode\n    replicas: 2");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  node_->end_container("mrpc-worker-0", 13);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "PermanentExitCode"));
  // cleanPodPolicy Running: running pods are deleted; failed pods stay for inspection.
  ASSERT_TRUE(wait_for_live_pods(0));
  EXPECT_THAT(node_->pods().objects(), Contains(::testing::Key("mrpc-worker-0")));
}

TEST_F(ControllerTest, SuspendsAndResumes) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(change_job({{"spec", {{"runPolicy", {{"suspend", true}}}}}}).ok());
  ASSERT_TRUE(phase_becomes("Suspended"));
  ASSERT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
  ASSERT_TRUE(change_job({{"spec", {{"runPolicy", {{"suspend", false}}}}}}).ok());
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

TEST_F(ControllerTest, ScalesWhileItRuns) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  for (const int replicas : {1, 3, 2}) {
    ASSERT_TRUE(change_job({{"spec", {{"worker", {{"replicas", replicas}}}}}}).ok());
    ASSERT_TRUE(node_->pods().wait_until([&](const Objects& pods) {
      return pods.size() == static_cast<std::size_t>(replicas);
    })) << replicas;
    ASSERT_TRUE(job_becomes([&](const json& job) {
      return job["status"]["replicas"]["ready"] == replicas && phase_of(job) == "Running";
    })) << replicas;
  }
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
  EXPECT_EQ(job()["status"]["nominalWorkers"], 2) << "nominalWorkers is set once, at the start";
}

// The advice in the error message for an unreadable master secret.
TEST_F(ControllerTest, IssuesNewJobKeysAfterTheMasterSecretIsDeleted) {
  start_controller("", kNoLeaderElection);
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::map<std::string, std::string> before = live_pods();
  const json old_key = job_key_of("mrpc-worker-0");
  controllers_.clear();
  ASSERT_TRUE(
      admin().remove("/api/v1/namespaces/" + namespace_ + "/secrets/tilewright-master-key").ok());
  start_controller("", kNoLeaderElection);
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["restarts"]["infrastructure"] == 2 &&
           job["status"]["replicas"]["ready"] == 2;
  }));
  for (const auto& [name, uid] : live_pods()) EXPECT_NE(before.at(name), uid);
  const json new_key = job_key_of("mrpc-worker-0");
  EXPECT_TRUE(old_key.is_string() && new_key.is_string());
  EXPECT_NE(old_key, new_key);
  EXPECT_EQ(new_key, job_key_of("mrpc-worker-1"));
  EXPECT_EQ(job()["status"]["failures"][0]["reason"], "KeyReplaced");
}

// The controller checks resources that it does not watch at every resync.
TEST_F(ControllerTest, RecreatesADeletedRendezvousEndpointSlice) {
  ASSERT_EQ(admin()
                .post("/api/v1/namespaces/" + namespace_ + "/services",
                      {{"metadata", {{"name", "tilewright-rendezvous"}}},
                       {"spec", {{"ports", {{{"name", "rendezvous"}, {"port", 29400}}}}}}})
                .status,
            201);
  const kube::ResourceType slices = kube::resource::endpoint_slices();
  ObjectWatch watch(*client_, slices, namespace_);
  std::string before;
  const auto published = [&] {
    return watch.wait_until([&](const Objects& there) {
      const auto slice = there.find("tilewright-rendezvous");
      return slice != there.end() && slice->second["metadata"]["uid"] != before &&
             slice->second["endpoints"][0]["addresses"][0] == "10.1.2.3";
    });
  };
  setenv("POD_IP", "10.1.2.3", 1);
  start_controller("", {"--resync_period=1"}, "");
  unsetenv("POD_IP");
  ASSERT_TRUE(published());
  before = watch.objects()["tilewright-rendezvous"]["metadata"]["uid"];
  ASSERT_TRUE(admin()
                  .remove("/apis/discovery.k8s.io/v1/namespaces/" + namespace_ +
                          "/endpointslices/tilewright-rendezvous")
                  .ok());
  EXPECT_TRUE(published());
}

// If only one pod fits, it must be worker 0, whose log users follow.
TEST_F(ControllerTest, CreatesTheFirstWorkerOfAnElasticJobBeforeTheOthers) {
  std::mutex mutex;
  std::vector<std::string> order;
  ObjectWatch pods(*client_, kube::resource::pods(), namespace_,
                   [&](const std::string& name, const json& pod) {
                     const std::lock_guard lock(mutex);
                     if (!pod.is_null() && !std::ranges::count(order, name)) order.push_back(name);
                   });
  start_controller();
  constexpr int kJobs = 8;
  constexpr int kWorkers = 8;
  json manifest = parse_yaml(kControllerJob);
  manifest["spec"]["elasticPolicy"]["maxReplicas"] = kWorkers;
  manifest["spec"]["worker"]["replicas"] = kWorkers;
  for (int i = 0; i < kJobs; ++i) {
    manifest["metadata"]["name"] = fmt::format("elastic-{}", i);
    ASSERT_TRUE(admin().post(jobs_path(), manifest).ok());
  }
  ASSERT_TRUE(pods.wait_until(
      [&](const Objects& there) { return there.size() == std::size_t{kJobs * kWorkers}; }));
  const std::lock_guard lock(mutex);
  for (int i = 0; i < kJobs; ++i) {
    const std::string job = fmt::format("elastic-{}-worker-", i);
    const auto first =
        std::ranges::find_if(order, [&](const auto& name) { return name.starts_with(job); });
    ASSERT_NE(first, order.end());
    EXPECT_EQ(*first, job + "0");
  }
}

// On a busy machine a test takes seconds to see a phase, which must not have ended by then.
TEST_F(ControllerTest, FiresADeadlineWithoutOtherEvents) {
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(
      manifest.find("  trainer:"), 10,
      "  runPolicy: {activeDeadlineSeconds: 10, ttlSecondsAfterFinished: 10}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(job_duration(), std::chrono::seconds(10));
  EXPECT_LE(job_duration(), kWithoutResync);
  // The TTL also fires on a timer.
  EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
}

TEST_F(ControllerTest, AppliesCleanPodPolicy) {
  start_controller();
  ObjectWatch services(*client_, kube::resource::services(), namespace_);
  for (const auto& [policy, left] :
       {std::pair{"None", 2U}, std::pair{"Running", 2U}, std::pair{"All", 0U}}) {
    std::string manifest = kControllerJob;
    const std::string name = fmt::format("clean-{}", left == 0          ? "all"
                                                     : policy[0] == 'N' ? "none"
                                                                        : "running");
    manifest.replace(manifest.find("name: mrpc"), 10, "name: " + name);
    manifest.replace(manifest.find("  trainer:"), 10,
                     fmt::format("  runPolicy: {{cleanPodPolicy: {}}}\n  trainer:", policy));
    create_job(manifest);
    const auto is = [&](const char* phase) {
      return [phase](const json& job) { return phase_of(job) == phase; };
    };
    ASSERT_TRUE(job_becomes(is("Running"), name));
    node_->succeed_all();
    ASSERT_TRUE(job_becomes(is("Succeeded"), name));
    ASSERT_TRUE(node_->pods().wait_until([&, left = left](const Objects& pods) {
      std::size_t count = 0;
      for (const auto& [pod, object] : pods) count += pod.starts_with(name) ? 1 : 0;
      return count == left;
    })) << policy;
    EXPECT_TRUE(services.wait_until([&, left = left](const Objects& all) {
      return all.contains(name) == (left > 0);
    })) << policy;
  }
}

TEST_F(ControllerTest, RunsARecreatedJobOfTheSameName) {
  start_controller();
  const json first = create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(admin().remove(jobs_path() + "/mrpc").ok());
  const json second = create_job();
  ASSERT_NE(first["metadata"]["uid"], second["metadata"]["uid"]);
  // No garbage collector runs, so the first job's objects remain, with their owner's UID.
  ASSERT_TRUE(job_becomes([](const json& job) { return is_true(job, "Blocked", "NameTaken"); }));
  for (const char* pod : {"mrpc-worker-0", "mrpc-worker-1"}) {
    admin().remove(fmt::format("/api/v1/namespaces/{}/pods/{}", namespace_, pod));
  }
  admin().remove(fmt::format("/api/v1/namespaces/{}/services/mrpc", namespace_));
  admin().remove(
      fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc", namespace_));
  ASSERT_TRUE(phase_becomes("Running"));
  for (const auto& [name, pod] : node_->pods().objects()) {
    EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], second["metadata"]["uid"]);
  }
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

TEST_F(ControllerTest, ReportsAnExceededQuotaAndContinuesWhenItIsRaised) {
  start_controller();
  set_pod_quota("0");
  create_job();
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "QuotaExceeded"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("requested: pods=1, used: pods=0, limited: pods=0"));
  set_pod_quota("10");
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

// With --gang_scheduler_name, and without a schedulingPolicy.
TEST_F(ControllerTest, WaitsForTheCrdOfPodGroupsAndCreatesOneForEveryJob) {
  start_controller("", {"--gang_scheduler_name=volcano"});
  create_job();
  ASSERT_TRUE(job_becomes([](const json& job) { return is_true(job, "Blocked", "CrdMissing"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("install podgroups.scheduling.volcano.sh"));
  EXPECT_THAT(node_->pods().objects(), SizeIs(0));
  install_permissive_crd("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup");
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
  const json group =
      admin()
          .get(fmt::format("/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/mrpc",
                           namespace_))
          .json();
  EXPECT_EQ(group["spec"]["minMember"], 1) << "minReplicas";
  for (const auto& [name, pod] : node_->pods().objects()) {
    EXPECT_EQ(pod["spec"]["schedulerName"], "volcano") << name;
    EXPECT_EQ(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "mrpc") << name;
  }
  admin().remove(std::string(kCrdsPath) + "/podgroups.scheduling.volcano.sh");
}

// A gang scheduler never schedules a replaced pod of a group with a minMember above the number of
// pods.
TEST_F(ControllerTest, LowersMinMemberOfThePodGroupWithTheJob) {
  install_permissive_crd("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup");
  ObjectWatch groups(*client_, {"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"},
                     namespace_);
  const auto min_member_becomes = [&](int number) {
    return groups.wait_until([&](const Objects& all) {
      const auto group = all.find("mrpc");
      return group != all.end() && group->second["spec"]["minMember"] == number;
    });
  };
  const auto becomes_ready = [&](int generation, int replicas) {
    return job_becomes([=](const json& job) {
      return phase_of(job) == "Running" && job["status"]["observedGeneration"] == generation &&
             job["status"]["replicas"]["ready"] == replicas;
    });
  };
  start_controller("", {"--gang_scheduler_name=scheduler-plugins-scheduler"});
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("minReplicas: 1"), 14, "minReplicas: 2");
  create_job(manifest);
  ASSERT_TRUE(becomes_ready(1, 2));
  ASSERT_TRUE(min_member_becomes(2));
  ASSERT_TRUE(
      change_job(
          {{"spec", {{"elasticPolicy", {{"minReplicas", 1}}}, {"worker", {{"replicas", 1}}}}}})
          .ok());
  ASSERT_TRUE(min_member_becomes(1));
  ASSERT_TRUE(becomes_ready(2, 1));
  const json group = groups.objects()["mrpc"];
  EXPECT_EQ(group["metadata"]["ownerReferences"][0]["uid"], job()["metadata"]["uid"]);

  ASSERT_TRUE(change_job({{"spec", {{"worker", {{"replicas", 3}}}}}}).ok());
  ASSERT_TRUE(becomes_ready(3, 3));
  EXPECT_EQ(groups.objects()["mrpc"]["metadata"]["resourceVersion"],
            group["metadata"]["resourceVersion"])
      << "the minimum is the same";
}

// A restarted controller recreates its timers from the status.
TEST_F(ControllerTest, FiresADeadlineAcrossRestarts) {
  RunningProgram& first = start_controller("", kNoLeaderElection);
  std::string manifest = kControllerJob;
  manifest.replace(
      manifest.find("  trainer:"), 10,
      "  runPolicy: {activeDeadlineSeconds: 10, ttlSecondsAfterFinished: 10}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  first.send(SIGKILL);
  first.wait();
  RunningProgram& second = start_controller("", kNoLeaderElection);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(job_duration(), std::chrono::seconds(10));
  EXPECT_LE(job_duration(), kWithoutResync);
  second.send(SIGKILL);
  second.wait();
  start_controller("", kNoLeaderElection);
  EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
}

// Failed creations are retried with exponential backoff; a deadline does not wait for them.
TEST_F(ControllerTest, FiresADeadlineWhileAQuotaBlocksEveryPod) {
  start_controller();
  set_pod_quota("0");
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("  trainer:"), 10,
                   "  runPolicy: {activeDeadlineSeconds: 11}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(job_duration(), std::chrono::seconds(11));
  EXPECT_LE(job_duration(), kWithoutResync);
}

TEST_F(ControllerTest, ReportsAWorkerLargerThanAnyNode) {
  start_controller();
  node_->accept_pods(false);
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: \"100\"");
  create_job(manifest);
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "LargerThanAnyNode"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("a worker requests cpu 100, memory 1Gi"));
  node_->set_cpus(128);
  ASSERT_TRUE(job_becomes([](const json& job) { return !is_true(job, "Blocked"); }));
  node_->set_cpus(64);
}

// `tilewright validate --cluster` reports the same problems before the job is created.
class PreflightTest : public ControllerTest {
 protected:
  CommandResult validate(const std::string& manifest) {
    const std::filesystem::path file = temporary_.path() / "job.yaml";
    std::ofstream(file) << manifest;
    ChildCommand command;
    command.program = program("tilewright");
    command.arguments = {"validate", "--cluster", "--namespace=" + namespace_,
                         "--kubeconfig=" + kubeconfig_.string(), file.string()};
    command.environment = environment_with_overrides({});
    return run_command(command);
  }
  void make_claim(const std::string& name) {
    const json claim = {{"metadata", {{"name", name}}},
                        {"spec",
                         {{"accessModes", {"ReadWriteMany"}},
                          {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}};
    const HttpResponse made = admin().post(
        fmt::format("/api/v1/namespaces/{}/persistentvolumeclaims", namespace_), claim);
    ASSERT_EQ(made.status, 201) << made.message();
  }
  // Later requests use a user without permissions.
  void use_credentials_of(const std::string& user) {
    const CertificatePaths paths = control_plane().issue_client(user, {});
    kubeconfig_ = temporary_.path() / "kubeconfig";
    write_kubeconfig(
        kubeconfig_, control_plane().url(), control_plane().authority(),
        {{"client-certificate", paths.certificate.string()}, {"client-key", paths.key.string()}});
  }
  // Adds `spec` to the worker's pod spec as an overlay.
  static std::string with_overlay(const std::string& spec) {
    std::string manifest = kControllerJob;
    return manifest.insert(manifest.find("    replicas: 2"),
                           "    podTemplate: {spec: {" + spec + "}}\n");
  }
};

TEST_F(PreflightTest, FindsMissingClaimsAndOversizedWorkers) {
  std::string manifest = kControllerJob;
  CommandResult outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("PersistentVolumeClaim work of volume work does not exist in namespace " +
                        namespace_));
  ASSERT_NO_FATAL_FAILURE(make_claim("work"));
  outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr(": accepted by "), HasSubstr("in namespace " + namespace_)));
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: \"100\"");
  outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("a worker requests cpu 100, memory 1Gi"));
  outcome = validate(
      with_overlay("volumes: [{name: more, persistentVolumeClaim: {claimName: elsewhere}}]"));
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(
      outcome.output,
      HasSubstr("PersistentVolumeClaim elsewhere of volume more does not exist in namespace " +
                namespace_));
  EXPECT_TRUE(jobs_->objects().empty()) << "validate creates no objects";
  EXPECT_TRUE(node_->pods().objects().empty());
}

// The API server answers all three with Forbidden. The operator creates the pods, so the user's
// missing permissions are no problem of the job.
TEST_F(PreflightTest, DistinguishesMissingPermissionsFromQuotasAndPodSecurity) {
  ASSERT_NO_FATAL_FAILURE(make_claim("work"));
  const HttpResponse restricted =
      admin().merge_patch("/api/v1/namespaces/" + namespace_,
                          {{"metadata",
                            {{"labels",
                              {{"pod-security.kubernetes.io/enforce", "restricted"},
                               {"pod-security.kubernetes.io/enforce-version", "v1.30"}}}}}});
  ASSERT_TRUE(restricted.ok()) << restricted.message();
  const std::string refused = "the API server would reject a worker's pod: pods ";
  // This version of the standard does not know that the sysctl is safe.
  CommandResult outcome = validate(with_overlay(
      "securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: 4096 87380 16777216}]}"));
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(refused + "\"mrpc-worker-0\" is forbidden: violates"));
  EXPECT_EQ(validate(kControllerJob).exit_code, 0);
  set_pod_quota("0");
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr(refused + "\"mrpc-worker-0\" is forbidden: exceeded quota"));

  const std::string user = "asker-" + namespace_;
  use_credentials_of(user);
  const auto unknown = [&](const std::string& what, const std::string& verb,
                           const std::string& kind) {
    return fmt::format(
        "job.yaml: not checked: {}: no permission to check it: {} is forbidden: User \"{}\" "
        "cannot {} resource ",
        what, kind, user, verb);
  };
  const std::string job_unknown =
      unknown("whether the API server accepts the job", "create", "trainjobs.tilewright.dev");
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(job_unknown));
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr(": only partly checked by "), Not(HasSubstr("accepted by"))));
  EXPECT_THAT(outcome.output, HasSubstr(unknown("whether the API server accepts a worker's pod",
                                                "create", "pods")));
  EXPECT_THAT(outcome.output,
              HasSubstr(unknown("whether a node is large enough", "list", "nodes")));
  EXPECT_THAT(outcome.output, HasSubstr(unknown("whether PersistentVolumeClaim work exists", "get",
                                                "persistentvolumeclaims \"work\"")));
  control_plane().grant(
      user,
      {{{"apiGroups", {"tilewright.dev"}}, {"resources", {"trainjobs"}}, {"verbs", {"create"}}}});
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr(": accepted by "), Not(HasSubstr(job_unknown))));
  EXPECT_THAT(outcome.output, HasSubstr(unknown("whether the API server accepts a worker's pod",
                                                "create", "pods")));
}

TEST_F(ControllerTest, ReportsPodEventsOfAPodThatDoesNotStart) {
  start_controller();
  node_->hold_containers(true);
  create_job();
  ASSERT_TRUE(node_->pods().wait_until([](const Objects& pods) {
    return std::ranges::count_if(pods, [](const auto& entry) {
             return entry.second["spec"].contains("nodeName");
           }) == 2;
  }));
  // Wording of the attach-detach controller.
  const json pod = node_->pods().objects()["mrpc-worker-0"];
  const json event = {
      {"metadata", {{"name", "mrpc-worker-0.attach"}, {"namespace", namespace_}}},
      {"involvedObject",
       {{"kind", "Pod"},
        {"namespace", namespace_},
        {"name", "mrpc-worker-0"},
        {"uid", pod["metadata"]["uid"]}}},
      {"type", "Warning"},
      {"reason", "FailedAttachVolume"},
      {"message", "AttachVolume.Attach failed for volume \"pv-1\" : rpc error: no such disk"},
      {"source", {{"component", "attachdetach-controller"}}},
      {"firstTimestamp", to_rfc3339(wall_now())},
      {"lastTimestamp", to_rfc3339(wall_now())},
      {"count", 1}};
  const HttpResponse posted =
      admin().post(fmt::format("/api/v1/namespaces/{}/events", namespace_), event);
  ASSERT_TRUE(posted.ok()) << posted.message();
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "FailedAttachVolume"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("no such disk; Kubernetes keeps retrying"));
  node_->hold_containers(false);
  node_->start_containers();
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

TEST_F(ControllerTest, ForceReplacesAPodOnAFailedNode) {
  // No worker connects to the rendezvous here, so all workers are unreachable.
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  node_->crash();
  node_->set_ready(false);
  FakeNode other(control_plane(), *client_, namespace_, "other-" + namespace_);
  ASSERT_TRUE(job_becomes(
      [](const json& job) { return job["status"]["restarts"]["infrastructure"] == 2; }));
  ASSERT_TRUE(other.pods().wait_until([&](const Objects& pods) {
    std::size_t replaced = 0;
    for (const auto& [name, pod] : pods) {
      replaced += pod["metadata"]["uid"] != before.at(name) &&
                  pod["status"].value("phase", "") == "Running";
    }
    return replaced == 2;
  }));
  EXPECT_EQ(job()["status"]["failures"][0]["reason"], "NodeLost");
}

TEST_F(ControllerTest, RecordsEachEventOnce) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  node_->succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  ObjectWatch events(*client_, kube::resource::events(), namespace_);
  const auto count = [](const Objects& all, const std::string& reason) {
    return std::ranges::count_if(all, [&](const auto& entry) {
      return entry.second["reason"] == reason && entry.second["regarding"]["kind"] == "TrainJob";
    });
  };
  for (const char* reason : {"Created", "Running", "Succeeded"}) {
    EXPECT_TRUE(events.wait_until([&](const Objects& all) { return count(all, reason) == 1; }))
        << reason << " was recorded " << count(events.objects(), reason) << " times";
  }
}

}  // namespace
}  // namespace tilewright::testing
