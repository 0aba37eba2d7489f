// A job's life under the real controller: pods, companions, status, events, policies.
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

TEST_F(ControllerTest, TakesAJobFromItsCreationToSuccess) {
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
  const std::string core = "/api/v1/namespaces/" + space_;
  EXPECT_EQ(admin().get(core + "/services/mrpc").json()["spec"]["clusterIP"], "None");
  EXPECT_TRUE(key_given_to("mrpc-worker-0").is_string());
  EXPECT_TRUE(
      admin()
          .get(fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc", space_))
          .ok());

  node_->succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_TRUE(is_true(job(), "Succeeded"));
  EXPECT_EQ(job()["status"]["replicas"]["succeeded"], 2);
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

TEST_F(ControllerTest, TellsWhatAJobsOwnerWouldBetterHaveWritten) {
  ObjectWatch events(*client_, kube::resource::events(), space_);
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: 500m");
  create_job(manifest);
  EXPECT_TRUE(events.wait_until([](const Objects& all) {
    return std::ranges::any_of(all, [](const auto& one) {
      const json& event = one.second;
      return event["reason"] == "Advice" && event["type"] == "Warning" &&
             event["note"].template get<std::string>().find("no whole number of CPUs") !=
                 std::string::npos;
    });
  }));
  ASSERT_TRUE(phase_becomes("Running"));
}

TEST_F(ControllerTest, CountsAFailureAndStartsThatWorkerAgain) {
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
  EXPECT_EQ(after.at("mrpc-worker-0"), before.at("mrpc-worker-0")) << "it has not failed";
  EXPECT_NE(after.at("mrpc-worker-1"), before.at("mrpc-worker-1"));
  const json failure = job()["status"]["failures"][0];
  EXPECT_EQ(failure["podUID"], before.at("mrpc-worker-1"));
  EXPECT_EQ(failure["signal"], 11);
  EXPECT_EQ(failure["node"], "node-" + space_);
  EXPECT_EQ(failure["lastLines"], json({"a last line", "of the log"}));
}

TEST_F(ControllerTest, ReplacesADeletedPodWithoutUsingUpRestarts) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  ASSERT_TRUE(admin().remove(fmt::format("/api/v1/namespaces/{}/pods/mrpc-worker-0", space_)).ok());
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

TEST_F(ControllerTest, FailsTheJobWhereThePolicySaysSo) {
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("    replicas: 2"), 15,
                   "    restartPolicy: ExitCode\n    replicas: 2");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  node_->end_container("mrpc-worker-0", 13);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "PermanentExitCode"));
  // cleanPodPolicy Running: what still runs goes, what has failed stays to be looked at.
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
  EXPECT_EQ(job()["status"]["nominalWorkers"], 2) << "frozen at the start";
}

// As its own sentence advises where the master secret cannot be read.
TEST_F(ControllerTest, GivesItsJobsNewKeysAfterItsMasterSecretWasDeleted) {
  start_controller("", kAlone);
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::map<std::string, std::string> before = live_pods();
  const json old_key = key_given_to("mrpc-worker-0");
  controllers_.clear();
  ASSERT_TRUE(
      admin().remove("/api/v1/namespaces/" + space_ + "/secrets/tilewright-master-key").ok());
  start_controller("", kAlone);
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["restarts"]["infrastructure"] == 2 &&
           job["status"]["replicas"]["ready"] == 2;
  }));
  for (const auto& [name, uid] : live_pods()) EXPECT_NE(before.at(name), uid);
  const json new_key = key_given_to("mrpc-worker-0");
  EXPECT_TRUE(old_key.is_string() && new_key.is_string());
  EXPECT_NE(old_key, new_key);
  EXPECT_EQ(new_key, key_given_to("mrpc-worker-1"));
  EXPECT_EQ(job()["status"]["failures"][0]["reason"], "KeyReplaced");
}

// What is not watched is made sure of at every resync.
TEST_F(ControllerTest, PublishesItsRendezvousAnewThoughSomebodyHasDeletedIt) {
  ASSERT_EQ(admin()
                .post("/api/v1/namespaces/" + space_ + "/services",
                      {{"metadata", {{"name", "tilewright-rendezvous"}}},
                       {"spec", {{"ports", {{{"name", "rendezvous"}, {"port", 29400}}}}}}})
                .status,
            201);
  const kube::ResourceType slices = kube::resource::endpoint_slices();
  ObjectWatch watch(*client_, slices, space_);
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
                  .remove("/apis/discovery.k8s.io/v1/namespaces/" + space_ +
                          "/endpointslices/tilewright-rendezvous")
                  .ok());
  EXPECT_TRUE(published());
}

// So that where there is room for one only it is the first, whose log people follow.
TEST_F(ControllerTest, CreatesTheFirstWorkerOfAnElasticJobBeforeTheOthers) {
  std::mutex mutex;
  std::vector<std::string> order;
  ObjectWatch pods(*client_, kube::resource::pods(), space_,
                   [&](const std::string& name, const json& pod) {
                     const std::lock_guard lock(mutex);
                     if (!pod.is_null() && !std::ranges::count(order, name)) order.push_back(name);
                   });
  start_controller();
  constexpr int kJobs = 8;
  constexpr int kWorkers = 8;
  json manifest = tree_of(kControllerJob);
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

TEST_F(ControllerTest, FiresADeadlineThoughNothingElseHappens) {
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(
      manifest.find("  trainer:"), 10,
      "  runPolicy: {activeDeadlineSeconds: 3, ttlSecondsAfterFinished: 2}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(lasted(), std::chrono::seconds(3));
  EXPECT_LE(lasted(), std::chrono::seconds(5));
  // And its time to live ends on a timer too.
  EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
}

TEST_F(ControllerTest, CleansUpAsThePolicySays) {
  start_controller();
  ObjectWatch services(*client_, kube::resource::services(), space_);
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

TEST_F(ControllerTest, TakesAJobThatIsCreatedAgainUnderItsName) {
  start_controller();
  const json first = create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(admin().remove(jobs_path() + "/mrpc").ok());
  const json second = create_job();
  ASSERT_NE(first["metadata"]["uid"], second["metadata"]["uid"]);
  // The garbage collector would take the first one's objects, with their owner's UID.
  ASSERT_TRUE(job_becomes([](const json& job) { return is_true(job, "Blocked", "NameTaken"); }));
  for (const char* pod : {"mrpc-worker-0", "mrpc-worker-1"}) {
    admin().remove(fmt::format("/api/v1/namespaces/{}/pods/{}", space_, pod));
  }
  admin().remove(fmt::format("/api/v1/namespaces/{}/services/mrpc", space_));
  admin().remove(
      fmt::format("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/mrpc", space_));
  ASSERT_TRUE(phase_becomes("Running"));
  for (const auto& [name, pod] : node_->pods().objects()) {
    EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], second["metadata"]["uid"]);
  }
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

TEST_F(ControllerTest, SaysWhatAQuotaForbidsAndGoesOnWhenItIsRaised) {
  start_controller();
  limit_pods("0");
  create_job();
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "QuotaExceeded"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("requested: pods=1, used: pods=0, limited: pods=0"));
  limit_pods("10");
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

// Its timers are made anew from the status.
TEST_F(ControllerTest, FiresADeadlineThatBeganBeforeItsOwnDeath) {
  RunningProgram& first = start_controller("", kAlone);
  std::string manifest = kControllerJob;
  manifest.replace(
      manifest.find("  trainer:"), 10,
      "  runPolicy: {activeDeadlineSeconds: 6, ttlSecondsAfterFinished: 3}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Running"));
  first.send(SIGKILL);
  first.wait();
  RunningProgram& second = start_controller("", kAlone);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(lasted(), std::chrono::seconds(6));
  EXPECT_LE(lasted(), std::chrono::seconds(8));
  second.send(SIGKILL);
  second.wait();
  start_controller("", kAlone);
  EXPECT_TRUE(jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
}

// What cannot be made is tried again ever more seldom; a deadline does not wait for that.
TEST_F(ControllerTest, FiresADeadlineWhileAQuotaForbidsEveryPod) {
  start_controller();
  limit_pods("0");
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("  trainer:"), 10,
                   "  runPolicy: {activeDeadlineSeconds: 11}\n  trainer:");
  create_job(manifest);
  ASSERT_TRUE(phase_becomes("Failed"));
  EXPECT_TRUE(is_true(job(), "Failed", "DeadlineExceeded"));
  EXPECT_GE(lasted(), std::chrono::seconds(11));
  EXPECT_LE(lasted(), std::chrono::seconds(13));
}

TEST_F(ControllerTest, SaysAtOnceThatAWorkerIsLargerThanAnyNode) {
  start_controller();
  node_->accept_pods(false);
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: \"100\"");
  create_job(manifest);
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "LargerThanAnyNode"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("a worker asks for cpu 100, memory 1Gi"));
  node_->set_cpus(128);
  ASSERT_TRUE(job_becomes([](const json& job) { return !is_true(job, "Blocked"); }));
  node_->set_cpus(64);
}

// `tilewright validate --cluster`: the same said before the job is created.
class PreflightTest : public ControllerTest {
 protected:
  CommandOutcome validate(const std::string& manifest) {
    const std::filesystem::path file = temporary_.path() / "job.yaml";
    std::ofstream(file) << manifest;
    ChildCommand command;
    command.program = program("tilewright");
    command.arguments = {"validate", "--cluster", "--namespace=" + space_,
                         "--kubeconfig=" + kubeconfig_.string(), file.string()};
    command.environment = environment_with({});
    return run_command(command);
  }
  void make_claim(const std::string& name) {
    const json claim = {{"metadata", {{"name", name}}},
                        {"spec",
                         {{"accessModes", {"ReadWriteMany"}},
                          {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}};
    const HttpResponse made =
        admin().post(fmt::format("/api/v1/namespaces/{}/persistentvolumeclaims", space_), claim);
    ASSERT_EQ(made.status, 201) << made.message();
  }
  // From now on somebody else asks, who has no rights yet.
  void ask_as(const std::string& user) {
    const CertificatePaths paths = control_plane().issue_client(user, {});
    kubeconfig_ = temporary_.path() / "kubeconfig";
    write_kubeconfig(
        kubeconfig_, control_plane().url(), control_plane().authority(),
        {{"client-certificate", paths.certificate.string()}, {"client-key", paths.key.string()}});
  }
  // Of a worker's pod, beside the worker itself.
  static std::string with_overlay(const std::string& spec) {
    std::string manifest = kControllerJob;
    return manifest.insert(manifest.find("    replicas: 2"),
                           "    podTemplate: {spec: {" + spec + "}}\n");
  }
};

TEST_F(PreflightTest, IsAskedBeforeAJobIsCreated) {
  std::string manifest = kControllerJob;
  CommandOutcome outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("there is no PersistentVolumeClaim work in the namespace " +
                                        space_ + ", which volume work names"));
  ASSERT_NO_FATAL_FAILURE(make_claim("work"));
  outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("would take it, in namespace " + space_));
  manifest.replace(manifest.find("cpu: \"1\""), 8, "cpu: \"100\"");
  outcome = validate(manifest);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("a worker asks for cpu 100, memory 1Gi"));
  outcome = validate(
      with_overlay("volumes: [{name: more, persistentVolumeClaim: {claimName: elsewhere}}]"));
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("there is no PersistentVolumeClaim elsewhere in the "
                                        "namespace " +
                                        space_ + ", which volume more names"));
  EXPECT_TRUE(jobs_->objects().empty()) << "nothing is made";
  EXPECT_TRUE(node_->pods().objects().empty());
}

// All three are Forbidden to the API server. The operator makes the pods: what the asker may not is
// no fault of the job.
TEST_F(PreflightTest, TellsTheAskersRightsFromQuotasAndPodSecurity) {
  ASSERT_NO_FATAL_FAILURE(make_claim("work"));
  const HttpResponse restricted = admin().merge_patch(
      "/api/v1/namespaces/" + space_,
      {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
  ASSERT_TRUE(restricted.ok()) << restricted.message();
  const std::string refused = "the API server would not take a worker's pod: pods ";
  CommandOutcome outcome = validate(with_overlay("containers: [{name: side, image: s}]"));
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(refused + "\"mrpc-worker-0\" is forbidden: violates"));
  EXPECT_EQ(validate(kControllerJob).exit_code, 0);
  limit_pods("0");
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 10) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr(refused + "\"mrpc-worker-0\" is forbidden: exceeded quota"));

  const std::string user = "asker-" + space_;
  ask_as(user);
  const auto unknown = [&](const std::string& what, const std::string& verb,
                           const std::string& kind) {
    return fmt::format(
        "job.yaml: not known: {}, which you may not ask: {} is forbidden: User \"{}\" "
        "cannot {} resource ",
        what, kind, user, verb);
  };
  const std::string of_the_job =
      unknown("whether the API server takes the job", "create", "trainjobs.tilewright.dev");
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(of_the_job));
  EXPECT_THAT(outcome.output,
              HasSubstr(unknown("whether the API server takes a worker's pod", "create", "pods")));
  EXPECT_THAT(outcome.output,
              HasSubstr(unknown("whether a node is large enough", "list", "nodes")));
  EXPECT_THAT(outcome.output, HasSubstr(unknown("whether the claim work exists", "get",
                                                "persistentvolumeclaims \"work\"")));
  control_plane().grant(
      user,
      {{{"apiGroups", {"tilewright.dev"}}, {"resources", {"trainjobs"}}, {"verbs", {"create"}}}});
  outcome = validate(kControllerJob);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, Not(HasSubstr(of_the_job)));
  EXPECT_THAT(outcome.output,
              HasSubstr(unknown("whether the API server takes a worker's pod", "create", "pods")));
}

TEST_F(ControllerTest, TellsWhatEventsSayOfAPodThatDoesNotStart) {
  start_controller();
  node_->hold_containers(true);
  create_job();
  ASSERT_TRUE(node_->pods().wait_until([](const Objects& pods) {
    return std::ranges::count_if(pods, [](const auto& entry) {
             return entry.second["spec"].contains("nodeName");
           }) == 2;
  }));
  // As the controller that attaches volumes words it.
  const json pod = node_->pods().objects()["mrpc-worker-0"];
  const json event = {
      {"metadata", {{"name", "mrpc-worker-0.attach"}, {"namespace", space_}}},
      {"involvedObject",
       {{"kind", "Pod"},
        {"namespace", space_},
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
      admin().post(fmt::format("/api/v1/namespaces/{}/events", space_), event);
  ASSERT_TRUE(posted.ok()) << posted.message();
  ASSERT_TRUE(
      job_becomes([](const json& job) { return is_true(job, "Blocked", "FailedAttachVolume"); }));
  EXPECT_THAT(condition_of(job(), "Blocked")["message"].get<std::string>(),
              HasSubstr("no such disk; it is tried again until it can"));
  node_->hold_containers(false);
  node_->start_containers();
  ASSERT_TRUE(phase_becomes("Running"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
}

TEST_F(ControllerTest, ReplacesAPodOnADeadNodeByForce) {
  // Whoever connects to the rendezvous would be heard: here nobody does, so all are silent.
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  const auto before = live_pods();
  node_->die();
  node_->set_ready(false);
  StandInNode other(control_plane(), *client_, space_, "other-" + space_);
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

TEST_F(ControllerTest, TellsEventsOnce) {
  start_controller();
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
  node_->succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  ObjectWatch events(*client_, kube::resource::events(), space_);
  const auto count = [](const Objects& all, const std::string& reason) {
    return std::ranges::count_if(all, [&](const auto& entry) {
      return entry.second["reason"] == reason && entry.second["regarding"]["kind"] == "TrainJob";
    });
  };
  for (const char* reason : {"Created", "Running", "Succeeded"}) {
    EXPECT_TRUE(events.wait_until([&](const Objects& all) { return count(all, reason) == 1; }))
        << reason << " was told " << count(events.objects(), reason) << " times";
  }
}

}  // namespace
}  // namespace tilewright::testing
