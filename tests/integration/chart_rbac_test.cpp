// Runs the operator with the RBAC permissions of the chart through complete jobs and checks that
// the permissions and the requests match exactly. Checks the permissions of users.
#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <functional>
#include <set>

#include "controller/client/resource.h"
#include "tests/integration/chart_fixture.h"
#include "tests/support/api_calls.h"
#include "tests/support/kubeconfig.h"
#include "tests/support/local_ports.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::kOperatorNamespace;
using testing::RunningProgram;

constexpr std::chrono::milliseconds kPollInterval{50};
constexpr const char* kNode = "elsewhere";  // a ready node without a kubelet

// {"create", "pods"}, {"patch", "trainjobs/status"}
using Permission = std::pair<std::string, std::string>;

// The permissions of the operator's Roles and ClusterRole.
std::set<Permission> permissions_granted(const std::vector<json>& objects) {
  std::set<Permission> permissions;
  for (const json& object : objects) {
    if (object["kind"] != "Role" && object["kind"] != "ClusterRole") continue;
    for (const json& rule : object["rules"]) {
      for (const json& resource : rule["resources"]) {
        for (const json& verb : rule["verbs"]) {
          permissions.emplace(verb.get<std::string>(), resource.get<std::string>());
        }
      }
    }
  }
  return permissions;
}

// Permissions that the API server requires in addition to that of the request: server-side apply of
// a new object requires create, and OpenShift requires create of endpointslices/restricted for the
// address of a pod.
const std::set<Permission> kImpliedPermissions = {{"create", "endpointslices"},
                                                  {"create", "endpointslices/restricted"}};

std::string format_permissions(const std::set<Permission>& permissions) {
  std::string text;
  for (const auto& [verb, resource] : permissions) {
    text.append(verb).append(" ").append(resource) += "\n";
  }
  return text;
}

// What only TrainJobs need. PyTorchJobs have no NetworkPolicies.
const std::set<Permission> kPermissionsForTrainJobs = {{"delete", "trainjobs"},
                                                       {"patch", "trainjobs/status"},
                                                       {"get", "networkpolicies"},
                                                       {"create", "networkpolicies"},
                                                       {"delete", "networkpolicies"}};

// The job has two workers, which are a gang of the scheduler. Empty: of the operator's.
std::string manifest(const std::string& name, const std::string& scheduler,
                     const std::string& more) {
  return "apiVersion: tilewright.dev/v1alpha1\nkind: TrainJob\nmetadata: {name: " + name +
         "}\nspec:\n  trainer: {task: mrpc, model: 'work:model', data: 'work:data', output: "
         "'work:out'}\n  elasticPolicy: {minReplicas: 2}\n  worker: {replicas: 2" +
         (scheduler.empty() ? "" : ", schedulerName: " + scheduler) +
         "}\n  volumes: [{name: work, persistentVolumeClaim: {claimName: work}}]\n"
         "  runPolicy: {" +
         (scheduler.empty() ? "" : "schedulingPolicy: {}, ") + more + "}\n";
}

// An elastic PyTorchJob with metrics for an autoscaler, which ends with exit code 1.
std::string pytorch_manifest(const std::string& name, const std::string& scheduler) {
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: " + name + R"(}
spec:
  runPolicy: {cleanPodPolicy: All, ttlSecondsAfterFinished: 0)" +
         (scheduler.empty() ? "" : ", schedulingPolicy: {}") + R"(}
  elasticPolicy:
    minReplicas: 1
    maxReplicas: 3
    metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        spec:)" +
         (scheduler.empty() ? "" : "\n          schedulerName: " + scheduler) + R"(
          securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
          containers:
          - name: pytorch
            image: trainer:1
            securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
)";
}

class ChartRbac : public testing::ChartTest {
 protected:
  // Installs the chart without the Deployment; a local process runs its command line instead.
  void install(const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--set=rbac.podGroups=true", "--set=rbac.aggregate=false"};
    all.insert(all.end(), flags.begin(), flags.end());
    objects_ = rendered(all);
    json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", json::array()}};
    for (const json& object : objects_) {
      if (object["kind"] == "Deployment") {
        deployment_ = object;
      } else {
        list["items"].push_back(object);
      }
    }
    make_namespace(kOperatorNamespace);
    make_namespace(kJobs);
    install_permissive_crd("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup");
    install_permissive_crd("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup");
    kubectl({"apply", "--server-side", "--force-conflicts", "-f",
             file("chart.json", list.dump()).string()});
    wait_for_crd("trainjobs.tilewright.dev");
    if (runs_pytorch_jobs()) wait_for_crd("pytorchjobs.kubeflow.org");
    for (const json& object : objects_) {
      if (object["kind"] == "Role" || object["kind"] == "ClusterRole") wait_until_effective(object);
    }
  }

  void TearDown() override {
    controller_.reset();
    if (!objects_.empty()) {
      const std::string selector = "app.kubernetes.io/name=tilewright";
      kubectl({"delete", "trainjobs.tilewright.dev", "--all", "-n", kJobs});
      if (runs_pytorch_jobs()) {
        kubectl({"delete", "pytorchjobs.kubeflow.org", "--all", "-n", kJobs});
      }
      kubectl({"delete", "node", kNode, "--ignore-not-found"});
      kubectl({"delete", "clusterroles,clusterrolebindings", "-l", selector});
      kubectl({"delete", "roles,rolebindings", "-l", selector, "--all-namespaces"});
      kubectl({"delete", "leases,secrets,endpointslices", "--all", "-n", kOperatorNamespace});
      kubectl({"delete", "pods,services,networkpolicies,secrets,horizontalpodautoscalers", "--all",
               "-n", kJobs, "--force", "--grace-period=0"});
      for (const char* group : {"scheduling.volcano.sh", "scheduling.x-k8s.io"}) {
        kubectl({"delete", std::string("podgroups.") + group, "--all", "-n", kJobs});
      }
      EXPECT_TRUE(wait_until([this] { return !is_allowed("list", "", "nodes", ""); }));
    }
    ChartTest::TearDown();
  }

  // The API server's authorizer reads roles from a cache.
  void wait_until_effective(const json& role) {
    const std::string space = role["metadata"].value("namespace", "");
    for (const json& rule : role["rules"]) {
      std::string name;
      if (rule.contains("resourceNames")) name = rule["resourceNames"][0];
      EXPECT_TRUE(wait_until([&] {
        return is_allowed(rule["verbs"][0], rule["apiGroups"][0], rule["resources"][0], space,
                          name);
      })) << rule;
    }
  }

  static bool wait_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + testing::kTimeout;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      poll(nullptr, 0, static_cast<int>(kPollInterval.count()));
    }
    return true;
  }

  void start() {
    const CommandResult token = control_plane().kubectl(
        {"create", "token", "tilewright", "--namespace", kOperatorNamespace});
    ASSERT_EQ(token.exit_code, 0) << token.error;
    testing::write_kubeconfig(folder() / "kubeconfig", control_plane().url(),
                              control_plane().authority(),
                              {{"token", token.output.substr(0, token.output.find('\n'))}});
    const int port = testing::free_port();
    std::vector<std::string> arguments = {"POD_NAME=controller-0", "POD_IP=192.0.2.1",
                                          std::string("POD_NAMESPACE=") + kOperatorNamespace,
                                          testing::program("tilewright").string()};
    const json& container = deployment_["spec"]["template"]["spec"]["containers"][0];
    ASSERT_EQ(container["command"], json::array({"tilewright"}));
    for (const std::string argument : container["args"]) {
      const std::size_t at = argument.find("_listen=");
      if (at == std::string::npos) {
        arguments.push_back(argument);
      } else if (argument.starts_with("--metrics")) {
        arguments.push_back(argument.substr(0, at + 8) + testing::loopback_address(port));
      } else {
        arguments.push_back(argument.substr(0, at + 8) +
                            testing::loopback_address(testing::free_port()));
      }
    }
    arguments.push_back("--kubeconfig=" + (folder() / "kubeconfig").string());
    controller_.emplace("/usr/bin/env", arguments, folder());
    metrics_.emplace("http://" + testing::loopback_address(port), "", testing::Credentials{});
    ASSERT_TRUE(controller_->wait_for_output("leading"));
  }

  // Every request of the operator, from its metrics.
  std::set<Permission> permissions_used() {
    std::set<Permission> permissions;
    for (const auto& [call, count] : testing::api_calls(metrics_->get("/metrics").body)) {
      permissions.insert(call);
    }
    return permissions;
  }

  // Runs TrainJobs from creation to deletion, with each of the gang schedulers. They become smaller
  // while they run.
  void exercise_jobs(const std::vector<std::string>& schedulers = kGangSchedulers) {
    add_node();
    create(manifest("waits", schedulers[0], "suspend: false"));
    bind_pod("waits-worker-0");
    for (const std::string& scheduler : schedulers) {
      const std::string name = std::string("life-") + (scheduler == "volcano" ? "a" : "b");
      const std::string job = "trainjob.tilewright.dev/" + name;
      const std::string group = pod_group(name, scheduler);
      create(manifest(name, scheduler, "cleanPodPolicy: All, ttlSecondsAfterFinished: 0"));
      const std::string pod = name + "-worker-0";
      wait_for_pod(pod);
      await(group, "jsonpath={.spec.minMember}=2");
      change(job, R"({"spec": {"elasticPolicy": {"minReplicas": 1}, "worker": {"replicas": 1}}})");
      await(group, "jsonpath={.spec.minMember}=1");
      end_pod(pod, "worker", 0);
      await_deletion(job);
    }
    add_foreign_pod("taken-worker-0");
    create(manifest("taken", schedulers[0], "suspend: false"));
    await("trainjob.tilewright.dev/taken", "condition=Blocked");
  }

  // Runs PyTorchJobs from creation to deletion, with each of the gang schedulers: autoscaling,
  // changes of the spec, suspension, a restart, a failure.
  void exercise_pytorch_jobs(const std::vector<std::string>& schedulers = kGangSchedulers) {
    add_node();
    create(pytorch_manifest("waits", schedulers[0]));
    bind_pod("waits-worker-0");
    for (const std::string& scheduler : schedulers) {
      const std::string name = std::string("life-") + (scheduler == "volcano" ? "a" : "b");
      const std::string job = "pytorchjob.kubeflow.org/" + name;
      const std::string autoscaler = "horizontalpodautoscaler/" + name;
      const std::string group = pod_group(name, scheduler);
      create(pytorch_manifest(name, scheduler));
      await("pod/" + name + "-worker-1", "create");
      await(autoscaler, "create");
      await(group, "create");
      change(job, R"({"spec": {"elasticPolicy": {"maxReplicas": 4},
                      "runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}})");
      await(autoscaler, "jsonpath={.spec.maxReplicas}=4");
      await(group, "jsonpath={.spec.minMember}=1");
      change(job, R"({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}})");
      await_deletion("service/" + name + "-worker-1");
      change(job, R"({"spec": {"runPolicy": {"suspend": true}}})");
      await_deletion(autoscaler);
      await_deletion(group);
      await_deletion("pod/" + name + "-worker-0");
      change(job, R"({"spec": {"runPolicy": {"suspend": false}}})");
      for (const int exit_code : {130, 1}) {
        const std::string pod = name + "-worker-0";
        wait_for_pod(pod);
        const std::string uid = uid_of(pod);
        end_pod(pod, "pytorch", exit_code);
        EXPECT_TRUE(wait_until([&] { return uid_of(pod) != uid; }));
      }
      await_deletion(job);
    }
    add_foreign_pod("taken-worker-0");
    create(pytorch_manifest("taken", schedulers[0]));
    await("pytorchjob.kubeflow.org/taken", "condition=Blocked");
  }

  // The PodGroup of a job with this scheduler. Empty: the operator's.
  std::string pod_group(const std::string& job, const std::string& scheduler) const {
    const json& container = deployment_["spec"]["template"]["spec"]["containers"][0];
    const bool volcano =
        scheduler == "volcano" || std::ranges::any_of(container["args"], [](const json& argument) {
          return argument == "--gang_scheduler_name=volcano";
        });
    return std::string("podgroup.scheduling.") + (volcano ? "volcano.sh/" : "x-k8s.io/") + job;
  }
  void add_node() {
    const json amounts = {{"cpu", "64"}, {"memory", "64Gi"}, {"pods", "110"}};
    ASSERT_EQ(admin().post("/api/v1/nodes", {{"metadata", {{"name", kNode}}}}).status, 201);
    ASSERT_TRUE(admin()
                    .merge_patch(std::string("/api/v1/nodes/") + kNode + "/status",
                                 {{"status",
                                   {{"capacity", amounts},
                                    {"allocatable", amounts},
                                    {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}})
                    .ok());
  }
  // The pod is then scheduled but does not start, so that the operator reads its events.
  void bind_pod(const std::string& pod) {
    wait_for_pod(pod);
    const auto bound = admin().post(
        pod_path(pod) + "/binding",
        {{"metadata", {{"name", pod}}}, {"target", {{"kind", "Node"}, {"name", kNode}}}});
    ASSERT_TRUE(bound.ok()) << bound.message();
  }
  void end_pod(const std::string& pod, const char* container, int exit_code) {
    const json terminated = {{"exitCode", exit_code},
                             {"reason", exit_code == 0 ? "Completed" : "Error"}};
    const auto ended = admin().merge_patch(pod_path(pod) + "/status",
                                           {{"status",
                                             {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                                              {"containerStatuses",
                                               {{{"name", container},
                                                 {"image", "trainer"},
                                                 {"imageID", "x"},
                                                 {"ready", false},
                                                 {"restartCount", 0},
                                                 {"state", {{"terminated", terminated}}}}}}}}});
    ASSERT_TRUE(ended.ok()) << ended.message();
  }
  // A pod with the name of a worker: the operator reads it and does not change it.
  void add_foreign_pod(const std::string& name) {
    const auto made = admin().post(
        pod_path(""),
        {{"metadata", {{"name", name}}}, {"spec", deployment_["spec"]["template"]["spec"]}});
    ASSERT_EQ(made.status, 201) << made.message();
  }
  static std::string pod_path(const std::string& name) {
    const std::string pods = std::string("/api/v1/namespaces/") + kJobs + "/pods";
    return name.empty() ? pods : pods + "/" + name;
  }
  // Empty if there is no such pod.
  static std::string uid_of(const std::string& pod) {
    return admin().get(pod_path(pod)).json().value(json::json_pointer("/metadata/uid"), "");
  }
  void change(const std::string& object, const std::string& patch) {
    kubectl({"patch", object, "--namespace", kJobs, "--type=merge", "--patch", patch});
  }
  void await(const std::string& object, const std::string& state) {
    kubectl({"wait", object, "--namespace", kJobs, "--for=" + state, "--timeout=60s"});
  }
  void await_deletion(const std::string& object) { await(object, "delete"); }
  void wait_for_pod(const std::string& name) { await("pod/" + name, "create"); }
  bool runs_pytorch_jobs() const {
    return std::ranges::any_of(objects_, [](const json& object) {
      return object["kind"] == "CustomResourceDefinition" &&
             object["metadata"]["name"] == "pytorchjobs.kubeflow.org";
    });
  }

  // `not_exercised`: permissions for what the test does not run.
  void expect_grants_match_requests(const std::set<Permission>& not_exercised = {}) {
    std::set<Permission> has = permissions_granted(objects_);
    for (const auto* permissions : {&kImpliedPermissions, &not_exercised}) {
      for (const Permission& permission : *permissions)
        EXPECT_EQ(has.erase(permission), 1U) << format_permissions({permission});
    }
    // The last requests (an event, a renewal of the Lease) are asynchronous.
    (void)wait_until([&] { return permissions_used() == has; });
    const std::set<Permission> requests = permissions_used();
    std::set<Permission> unused, missing;
    std::ranges::set_difference(has, requests, std::inserter(unused, unused.end()));
    std::ranges::set_difference(requests, has, std::inserter(missing, missing.end()));
    EXPECT_TRUE(unused.empty()) << "unused permissions:\n" << format_permissions(unused);
    EXPECT_TRUE(missing.empty()) << "requests without permission:\n" << format_permissions(missing);
    controller_->send(SIGTERM);
    EXPECT_EQ(controller_->wait(), 0);
    EXPECT_THAT(controller_->output(), ::testing::Not(::testing::HasSubstr("forbidden")));
  }

  // The operator.
  static bool is_allowed(const std::string& verb, const std::string& group,
                         const std::string& resource, const std::string& space,
                         const std::string& name = "") {
    return user_is_allowed(
        std::string("system:serviceaccount:") + kOperatorNamespace + ":tilewright", verb, group,
        resource, space, name);
  }
  static bool user_is_allowed(const std::string& user, const std::string& verb,
                              const std::string& group, const std::string& resource,
                              const std::string& space, const std::string& name = "") {
    const auto judged = admin().post("/apis/authorization.k8s.io/v1/subjectaccessreviews",
                                     {{"apiVersion", "authorization.k8s.io/v1"},
                                      {"kind", "SubjectAccessReview"},
                                      {"spec",
                                       {{"user", user},
                                        {"resourceAttributes",
                                         {{"verb", verb},
                                          {"group", group},
                                          {"resource", resource},
                                          {"namespace", space},
                                          {"name", name}}}}}});
    EXPECT_EQ(judged.status, 201) << judged.message();
    return judged.json()["status"].value("allowed", false);
  }

  void kubectl(const std::vector<std::string>& arguments) {
    const CommandResult outcome = control_plane().kubectl(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  static void wait_for_crd(const std::string& name) {
    const CommandResult waited = control_plane().wait_for_crd(name);
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
  }
  void create(const std::string& text) {
    kubectl({"create", "--namespace", kJobs, "-f", file("job.yaml", text).string()});
  }

  static constexpr const char* kJobs = "jobs";
  inline static const std::vector<std::string> kGangSchedulers = {"volcano",
                                                                  "scheduler-plugins-scheduler"};
  std::vector<json> objects_;
  json deployment_;
  std::optional<RunningProgram> controller_;
  std::optional<testing::HttpsClient> metrics_;
};

TEST_F(ChartRbac, MatchesTheRequestsInOneNamespace) {
  ASSERT_NO_FATAL_FAILURE(install({"--set", std::string("watchNamespace=") + kJobs}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_jobs());
  expect_grants_match_requests();
  EXPECT_TRUE(is_allowed("list", "", "pods", kJobs));
  EXPECT_FALSE(is_allowed("list", "", "pods", "default"));
  EXPECT_FALSE(is_allowed("list", "", "pods", ""));
  EXPECT_FALSE(is_allowed("create", "", "secrets", "default"));
}

TEST_F(ChartRbac, MatchesTheRequestsInAllNamespaces) {
  ASSERT_NO_FATAL_FAILURE(install({}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_jobs());
  expect_grants_match_requests();
}

TEST_F(ChartRbac, MatchesTheRequestsOfPyTorchJobsInOneNamespace) {
  ASSERT_NO_FATAL_FAILURE(install(
      {"--set", std::string("watchNamespace=") + kJobs, "--set", "pytorchjobs.enabled=true"}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_pytorch_jobs());
  expect_grants_match_requests(kPermissionsForTrainJobs);
  EXPECT_TRUE(is_allowed("list", "kubeflow.org", "pytorchjobs", kJobs));
  EXPECT_FALSE(is_allowed("list", "kubeflow.org", "pytorchjobs", ""));
  EXPECT_FALSE(is_allowed("patch", "autoscaling", "horizontalpodautoscalers", "default"));
}

TEST_F(ChartRbac, MatchesTheRequestsOfPyTorchJobsInAllNamespaces) {
  ASSERT_NO_FATAL_FAILURE(install({"--set", "pytorchjobs.enabled=true"}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_pytorch_jobs());
  expect_grants_match_requests(kPermissionsForTrainJobs);
}

// Jobs without a schedulingPolicy and a schedulerName.
TEST_F(ChartRbac, MatchesTheRequestsWithAGangScheduler) {
  ASSERT_NO_FATAL_FAILURE(
      install({"--set", "gangSchedulerName=volcano", "--set", "rbac.podGroups=false"}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_jobs({""}));
  EXPECT_EQ(admin().get(pod_path("waits-worker-0")).json()["spec"]["schedulerName"], "volcano");
  expect_grants_match_requests();
  EXPECT_TRUE(is_allowed("create", "scheduling.volcano.sh", "podgroups", kJobs));
  EXPECT_FALSE(is_allowed("create", "scheduling.x-k8s.io", "podgroups", kJobs));
}

TEST_F(ChartRbac, MatchesTheRequestsOfPyTorchJobsWithAGangScheduler) {
  ASSERT_NO_FATAL_FAILURE(
      install({"--set", "pytorchjobs.enabled=true", "--set",
               "gangSchedulerName=scheduler-plugins-scheduler", "--set", "rbac.podGroups=false"}));
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(exercise_pytorch_jobs({""}));
  EXPECT_EQ(admin().get(pod_path("waits-worker-0")).json()["spec"]["schedulerName"],
            "scheduler-plugins-scheduler");
  expect_grants_match_requests(kPermissionsForTrainJobs);
  EXPECT_FALSE(is_allowed("create", "scheduling.volcano.sh", "podgroups", kJobs));
}

TEST_F(ChartRbac, AllowsReadingOnlyTheOperatorsSecret) {
  ASSERT_NO_FATAL_FAILURE(install({}));
  EXPECT_TRUE(is_allowed("get", "", "secrets", kOperatorNamespace, "tilewright-master-key"));
  EXPECT_FALSE(is_allowed("get", "", "secrets", kOperatorNamespace, "another"));
  EXPECT_FALSE(is_allowed("get", "", "secrets", kJobs, "tilewright-master-key"));
  for (const char* verb : {"list", "watch", "update", "patch"}) {
    for (const char* space : {"", kOperatorNamespace, kJobs}) {
      EXPECT_FALSE(is_allowed(verb, "", "secrets", space)) << verb << space;
    }
  }
  EXPECT_FALSE(is_allowed("create", "rbac.authorization.k8s.io", "clusterroles", ""));
  EXPECT_FALSE(is_allowed("create", "", "pods/exec", kJobs));
  EXPECT_FALSE(is_allowed("get", "", "pods/log", kJobs));
}

// The API server runs without the controller that aggregates cluster roles. The users view, edit
// and admin are bound to the roles with the label for the cluster role of their name instead.
class ChartUserRoles : public ChartRbac {
 protected:
  void bind_users(const std::vector<std::string>& flags) {
    constexpr const char* kGroup = "rbac.authorization.k8s.io";
    json items = json::array();
    for (const json& object : rendered(flags)) {
      if (object["kind"] != "ClusterRole") continue;
      const std::string name = object["metadata"]["name"];
      bool aggregated = false;
      for (const std::string user : {"view", "edit", "admin"}) {
        const std::string label = std::string(kGroup) + "/aggregate-to-" + user;
        if (object["metadata"]["labels"].value(label, "") != "true") continue;
        aggregated = true;
        items.push_back(
            {{"apiVersion", std::string(kGroup) + "/v1"},
             {"kind", "RoleBinding"},
             {"metadata",
              {{"name", fmt::format("{}-{}", name, user)},
               {"namespace", kJobs},
               {"labels", object["metadata"]["labels"]}}},
             {"roleRef", {{"apiGroup", kGroup}, {"kind", "ClusterRole"}, {"name", name}}},
             {"subjects", {{{"apiGroup", kGroup}, {"kind", "User"}, {"name", user}}}}});
      }
      if (aggregated) items.push_back(object);
    }
    make_namespace(kJobs);
    bound_ = true;
    const json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
    kubectl({"apply", "-f", file("roles.json", list.dump()).string()});
  }
  void TearDown() override {
    if (bound_) {
      const std::string selector = "app.kubernetes.io/name=tilewright";
      kubectl({"delete", "clusterroles", "-l", selector});
      kubectl({"delete", "rolebindings", "-l", selector, "-n", kJobs});
    }
    ChartRbac::TearDown();
  }

  // The permissions that the user has for the kind in the namespace, with its subresources.
  static std::set<Permission> permissions_of(const std::string& user, const std::string& group,
                                             const std::string& plural, const std::string& space) {
    std::set<Permission> permissions;
    for (const char* verb :
         {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}) {
      for (const char* subresource : {"", "/status", "/scale"}) {
        const std::string resource = plural + subresource;
        if (user_is_allowed(user, verb, group, resource, space)) {
          permissions.emplace(verb, resource);
        }
      }
    }
    return permissions;
  }

 private:
  bool bound_ = false;
};

// As the cluster roles view, edit and admin do for Deployments, but only the operator writes the
// status.
TEST_F(ChartUserRoles, LetUsersReadOrEditJobs) {
  ASSERT_NO_FATAL_FAILURE(bind_users({"--set=pytorchjobs.enabled=true"}));
  struct Resource {
    std::string group;
    std::string plural;
  };
  for (const Resource& resource :
       {Resource{"tilewright.dev", "trainjobs"}, Resource{"kubeflow.org", "pytorchjobs"}}) {
    const std::string& group = resource.group;
    const std::string& plural = resource.plural;
    std::set<Permission> expected;
    for (const char* verb : {"get", "list", "watch"}) {
      for (const char* subresource : {"", "/status", "/scale"}) {
        expected.emplace(verb, plural + subresource);
      }
    }
    for (const std::string user : {"view", "edit", "admin"}) {
      if (user == "edit") {
        for (const char* verb : {"create", "update", "patch", "delete", "deletecollection"}) {
          expected.emplace(verb, plural);
        }
        for (const char* verb : {"update", "patch"}) expected.emplace(verb, plural + "/scale");
      }
      std::set<Permission> permissions;
      EXPECT_TRUE(wait_until([&] {
        permissions = permissions_of(user, group, plural, kJobs);
        return permissions == expected;
      })) << user
          << ":\n"
          << format_permissions(permissions) << "expected:\n"
          << format_permissions(expected);
      EXPECT_EQ(permissions_of(user, group, plural, "default"), std::set<Permission>());
    }
  }
  for (const std::string user : {"view", "edit", "admin"}) {
    EXPECT_FALSE(user_is_allowed(user, "get", "", "secrets", kJobs)) << user;
    EXPECT_FALSE(user_is_allowed(user, "create", "", "pods", kJobs)) << user;
  }
}

}  // namespace
}  // namespace tilewright
