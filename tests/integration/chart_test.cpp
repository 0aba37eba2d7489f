// Compares the rendered chart with the CRD and the constants of the code, and applies it to an API
// server.
#include "common/base/version.h"
#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "tests/integration/chart_fixture.h"
#include "tests/integration/openapi_schemas.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using testing::CommandResult;
using ::testing::HasSubstr;
using testing::kAllFlags;
using testing::kDefaultFlags;

const std::string kCrdName = "trainjobs.tilewright.dev";

json crd_source() {
  return read_yaml(testing::read_text(testing::source_dir() / "crds" / (kCrdName + ".yaml"))).tree;
}

class Chart : public testing::ChartTest {};

TEST_F(Chart, PassesHelmLint) {
  for (const auto& flags : {kDefaultFlags, kAllFlags}) {
    std::vector<std::string> arguments = {"lint", testing::chart_folder().string(), "--strict",
                                          "--kube-version", "1.34.4"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandResult outcome = run("helm", arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  }
}

TEST_F(Chart, RejectsValuesOfTheWrongType) {
  const std::pair<const char*, const char*> wrong[] = {
      {"replicas=two", "replicas"},
      {"replica=2", "replica"},
      {"image.tag=a b", "tag"},
      {"image.repository=a:b", "repository"},
      {"image.digest=abc", "digest"},
      {"image.digest=sha256:0123", "digest"},
      {"workerImage=a b", "workerImage"},
      {"workerImage=worker@sha256:0123", "workerImage"},
      {"workerImage=worker@md5:0123456789abcdef0123456789abcdef", "workerImage"},
      {"crd.install=false,workerImage=worker:1", "workerImage: found a value with crd.install"},
      {"image.pullPolicy=Sometimes", "pullPolicy"},
      {"watchNamespace=A_b", "watchNamespace"},
      {"logLevel=loud", "logLevel"},
      {"networkPolicy.metricsNamespaces={A_b}", "metricsNamespaces"},
      {"networkPolicy.workerCIDRs={10.0.0.1}", "workerCIDRs"},
      {"rbac.podGroups=perhaps", "podGroups"},
      {"rbac.secrets=true", "secrets"},
      {"reconcilers=0", "reconcilers"},
      {"gangSchedulerName=a b", "gangSchedulerName"},
      {"metrics.podMonitor.interval=often", "interval"},
      {"serviceAccount.create=false", "serviceAccount.name"}};
  for (const auto& [value, name] : wrong) {
    const CommandResult outcome = helm_template({"--set", value});
    EXPECT_NE(outcome.exit_code, 0) << value;
    EXPECT_THAT(outcome.error, HasSubstr(name)) << value;
  }
}

TEST_F(Chart, ContainsTheCrdUnchangedAndKeepsIt) {
  json crd = testing::find_only(rendered(kDefaultFlags), "CustomResourceDefinition", kCrdName);
  EXPECT_EQ(crd["metadata"]["annotations"], (json{{"helm.sh/resource-policy", "keep"}}));
  crd["metadata"].erase("annotations");
  crd["metadata"].erase("labels");
  EXPECT_EQ(json::diff(crd_source(), crd), json::array());
}

TEST_F(Chart, ContainsTheCrdOfPyTorchJobs) {
  json crd = testing::find_only(rendered({"--set", "pytorchjobs.enabled=true"}),
                                "CustomResourceDefinition", "pytorchjobs.kubeflow.org");
  crd["metadata"].erase("annotations");
  crd["metadata"].erase("labels");
  const std::string source =
      testing::read_text(testing::source_dir() / "crds/pytorchjobs.kubeflow.org.yaml");
  EXPECT_EQ(json::diff(read_yaml(source).tree, crd), json::array());
}

TEST_F(Chart, SetsTheCrdsDefaultWorkerImage) {
  json crd = testing::find_only(rendered(kAllFlags), "CustomResourceDefinition", kCrdName);
  EXPECT_FALSE(crd["metadata"].contains("annotations")) << "crd.keep is false";
  json& image = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
                   ["properties"]["worker"]["properties"]["image"];
  EXPECT_EQ(image["default"], "registry.example:5000/ml/tilewright-worker:0.1.0");
  image["default"] = std::string("tilewright-worker:") + kVersion;
  crd["metadata"].erase("labels");
  EXPECT_EQ(json::diff(crd_source(), crd), json::array()) << "other differences than the image";
}

TEST_F(Chart, PinsImagesByDigest) {
  const std::string digest =
      "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
  const std::string worker = "registry.example/tilewright-worker@" + digest;
  const auto objects =
      rendered({"--set", "image.repository=registry.example/tilewright", "--set", "image.tag=0.1.0",
                "--set", "image.digest=" + digest, "--set", "workerImage=" + worker});
  const json deployment = testing::find_only(objects, "Deployment", "tilewright-controller");
  EXPECT_EQ(deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example/tilewright@" + digest);
  const json crd = testing::find_only(objects, "CustomResourceDefinition", kCrdName);
  EXPECT_EQ(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
               ["properties"]["worker"]["properties"]["image"]["default"],
            worker);
}

TEST_F(Chart, OmitsTheCrdOnRequest) {
  for (const json& object : rendered({"--set", "crd.install=false"})) {
    EXPECT_NE(object["kind"], "CustomResourceDefinition");
  }
}

// Without support for symbolic links, a checkout contains a file with the target path instead.
TEST_F(Chart, ReportsABrokenLinkToTheCrd) {
  const fs::path copy = folder() / "copy";
  fs::copy(testing::chart_folder(), copy, fs::copy_options::recursive);
  const fs::path file = copy / "files" / (kCrdName + ".yaml");
  fs::remove(file);
  CommandResult outcome = helm_template({}, copy);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("found nothing, expected the CRD"),
                                   HasSubstr("copy crds/" + kCrdName + ".yaml")));
  std::ofstream(file) << "../../../crds/" << kCrdName << ".yaml";
  outcome = helm_template({}, copy);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, HasSubstr("copy crds/" + kCrdName + ".yaml"));
}

TEST_F(Chart, RendersTheSameFromItsPackage) {
  const CommandResult packed = run(
      "helm", {"package", testing::chart_folder().string(), "--destination", folder().string()});
  ASSERT_EQ(packed.exit_code, 0) << packed.error;
  const fs::path package = folder() / ("tilewright-" + std::string(kVersion) + ".tgz");
  const CommandResult outcome = helm_template({}, package);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, rendered_text(kDefaultFlags));
}

TEST_F(Chart, UsesThePortsAndLabelsOfThePrograms) {
  const auto objects = rendered({"--set", "metrics.podMonitor.enabled=true"});
  const json deployment = testing::find_only(objects, "Deployment", "tilewright-controller");
  const json& container = deployment["spec"]["template"]["spec"]["containers"][0];
  EXPECT_EQ(container["image"], std::string("tilewright-controller:") + kVersion);
  std::map<std::string, int> ports;
  for (const json& port : container["ports"]) ports[port["name"]] = port["containerPort"];
  EXPECT_EQ(ports, (std::map<std::string, int>{{"rendezvous", kRendezvousPort},
                                               {"metrics", kControllerMetricsPort},
                                               {"health", kControllerHealthPort}}));
  const json rendezvous = testing::find_only(objects, "Service", "tilewright-rendezvous");
  EXPECT_FALSE(rendezvous["spec"].contains("selector")) << "the leader writes the EndpointSlice";
  EXPECT_EQ(rendezvous["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
  EXPECT_EQ(rendezvous["spec"]["ports"][0]["port"], kRendezvousPort);
  const json monitor = testing::find_only(objects, "PodMonitor", "tilewright-workers");
  EXPECT_EQ(
      monitor["spec"]["selector"]["matchLabels"],
      (json{{labels::kManagedBy, labels::kManagedByValue}, {labels::kRole, labels::kRoleWorker}}));
  EXPECT_EQ(monitor["spec"]["podMetricsEndpoints"][0]["port"], kMetricsPortName);
  const json service = testing::find_only(objects, "Service", "tilewright-metrics");
  const json labels = deployment["spec"]["template"]["metadata"]["labels"];
  for (const auto& [name, value] : service["spec"]["selector"].items()) {
    EXPECT_EQ(labels.value(name, ""), value);
  }
}

// The tree with the name of its type in place of each value that is not a container.
json types_of(const json& tree) {
  if (!tree.is_structured()) return tree.type_name();
  json types = tree.is_array() ? json::array() : json::object();
  for (const auto& member : tree.items()) {
    if (tree.is_array()) {
      types.push_back(types_of(member.value()));
    } else {
      types[member.key()] = types_of(member.value());
    }
  }
  return types;
}

// Names that YAML without quotes reads as a number or a boolean.
TEST_F(Chart, WritesEveryNameAsAString) {
  const auto types_with = [&](const std::string& name) {
    std::vector<std::string> flags = kAllFlags;
    // A Service's name begins with a letter.
    const std::string service = name[0] <= '9' ? "no" : name;
    flags.insert(flags.end(), {"--namespace", name, "--set-string", "fullnameOverride=" + service});
    for (const char* value :
         {"nameOverride", "watchNamespace", "priorityClassName", "serviceAccount.name"}) {
      flags.insert(flags.end(), {"--set-string", fmt::format("{}={}", value, name)});
    }
    std::vector<json> types;
    for (const json& object : rendered(flags)) types.push_back(types_of(object));
    return types;
  };
  const std::vector<json> expected = types_with("name");
  ASSERT_FALSE(expected.empty());
  for (const char* misread : {"12345", "1e3", "no"}) {
    const std::vector<json> found = types_with(misread);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(json::diff(expected[i], found[i]), json::array()) << misread;
    }
  }
}

TEST_F(Chart, OpensThePortOfTheStoresOnlyForPyTorchJobs) {
  const auto ports = [&](const std::vector<std::string>& flags) {
    const auto objects = rendered(flags);
    const json service = testing::find_only(objects, "Service", "tilewright-rendezvous");
    const json policy = testing::find_only(objects, "NetworkPolicy", "tilewright-controller");
    const json deployment = testing::find_only(objects, "Deployment", "tilewright-controller");
    const json& container = deployment["spec"]["template"]["spec"]["containers"][0];
    std::map<std::string, std::vector<json>> found;
    for (const json& port : service["spec"]["ports"]) found[port["name"]].push_back(port["port"]);
    for (const json& port : container["ports"]) {
      found[port["name"]].push_back(port["containerPort"]);
    }
    for (const json& port : policy["spec"]["ingress"][0]["ports"]) {
      found[port["port"]].push_back("allowed");
    }
    return found;
  };
  EXPECT_FALSE(ports(kDefaultFlags).contains("tcpstore"));
  EXPECT_EQ(ports({"--set", "pytorchjobs.enabled=true"})["tcpstore"],
            (std::vector<json>{kTcpStorePort, kTcpStorePort, "allowed"}));
  EXPECT_FALSE(
      ports({"--set", "pytorchjobs.enabled=true,pytorchjobs.store=false"}).contains("tcpstore"));
}

TEST_F(Chart, OpensMetricsToTheGivenNamespacesOnly) {
  const auto ingress = [&](const std::vector<std::string>& flags) {
    return testing::find_only(rendered(flags), "NetworkPolicy",
                              "tilewright-controller")["spec"]["ingress"];
  };
  const json everywhere = {{"namespaceSelector", json::object()}};
  const json rendezvous = {{"from", json::array({everywhere})},
                           {"ports", json::array({{{"port", "rendezvous"}, {"protocol", "TCP"}}})}};
  EXPECT_EQ(ingress(kDefaultFlags)[0], rendezvous);
  EXPECT_EQ(ingress(kDefaultFlags)[1]["from"], json::array({everywhere}));
  const std::vector<std::string> limited = {"--set",
                                            "networkPolicy.metricsNamespaces={monitoring,sre}"};
  EXPECT_EQ(ingress(limited)[0], rendezvous);
  EXPECT_EQ(ingress(limited)[1], json::parse(R"({
    "from": [{"namespaceSelector": {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring", "sre"]}]}}],
    "ports": [{"port": "metrics", "protocol": "TCP"}]})"));
  const json deployment =
      testing::find_only(rendered(limited), "Deployment", "tilewright-controller");
  EXPECT_THAT(deployment["spec"]["template"]["spec"]["containers"][0]["args"],
              ::testing::Contains("--metrics_namespaces=monitoring,sre"));
}

// No podSelector matches pods that use hostNetwork.
TEST_F(Chart, AdmitsWorkersFromTheGivenAddresses) {
  const auto ingress = [&](const std::vector<std::string>& flags) {
    return testing::find_only(rendered(flags), "NetworkPolicy",
                              "tilewright-controller")["spec"]["ingress"];
  };
  const std::vector<std::string> flags = {"--set",
                                          "networkPolicy.workerCIDRs={10.0.0.0/16,fd00::/64}"};
  EXPECT_EQ(ingress(flags)[0], json::parse(R"({
    "from": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/16"}},
             {"ipBlock": {"cidr": "fd00::/64"}}],
    "ports": [{"port": "rendezvous", "protocol": "TCP"}]})"));
  EXPECT_EQ(ingress(flags)[1], ingress(kDefaultFlags)[1]) << "metrics";
}

TEST_F(Chart, PassesTheGangSchedulerAndAllowsItsPodGroups) {
  const auto arguments = [&](const std::vector<std::string>& flags) {
    const json deployment =
        testing::find_only(rendered(flags), "Deployment", "tilewright-controller");
    return deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        .get<std::vector<std::string>>();
  };
  const auto groups = [&](const std::vector<std::string>& flags) {
    const json role = testing::find_only(rendered(flags), "ClusterRole",
                                         std::string(testing::kOperatorNamespace) + "-tilewright");
    for (const json& rule : role["rules"]) {
      if (rule["resources"] == json::array({"podgroups"})) return rule["apiGroups"];
    }
    return json::array();
  };
  for (const std::string& argument : arguments(kDefaultFlags)) {
    EXPECT_FALSE(argument.starts_with("--gang_scheduler_name"));
  }
  EXPECT_EQ(groups(kDefaultFlags), json::array());
  EXPECT_EQ(groups({"--set=rbac.podGroups=true"}),
            json::array({"scheduling.volcano.sh", "scheduling.x-k8s.io"}));
  // It turns the flag off.
  EXPECT_EQ(rendered({"--set=gangSchedulerName=none"}), rendered(kDefaultFlags));
  EXPECT_EQ(groups({"--set=gangSchedulerName=none", "--set=rbac.podGroups=true"}),
            json::array({"scheduling.volcano.sh", "scheduling.x-k8s.io"}));
  for (const auto& [scheduler, group] :
       {std::pair{"volcano", "scheduling.volcano.sh"},
        std::pair{"scheduler-plugins-scheduler", "scheduling.x-k8s.io"}}) {
    const std::vector<std::string> flags = {std::string("--set=gangSchedulerName=") + scheduler};
    EXPECT_THAT(arguments(flags),
                ::testing::Contains(std::string("--gang_scheduler_name=") + scheduler));
    EXPECT_EQ(groups(flags), json::array({group}));
  }
}

TEST_F(Chart, PassesKubeconform) {
  const testing::HttpResponse openapi = admin().get("/openapi/v2");
  ASSERT_TRUE(openapi.ok()) << openapi.body;
  const std::string location = testing::write_schemas(openapi.json(), folder() / "schemas");
  const auto check = [&](const std::string& manifests) {
    // The schemas of the Prometheus operator's kinds are not available.
    return run("kubeconform",
               {"-strict", "-summary", "-schema-location", location, "-skip",
                "PodMonitor,PrometheusRule", file("manifests.yaml", manifests).string()});
  };
  std::string text = rendered_text(kDefaultFlags);
  CommandResult outcome = check(text);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("Invalid: 0, Errors: 0, Skipped: 0"));
  outcome = check(rendered_text(kAllFlags));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("Invalid: 0, Errors: 0, Skipped: 3"));
  // kubeconform rejects an unknown field.
  const std::size_t place = text.find("revisionHistoryLimit");
  ASSERT_NE(place, std::string::npos);
  outcome = check(text.replace(place, 8, "revision_"));
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
}

TEST_F(Chart, IsAcceptedByTheApiServer) {
  make_namespace(testing::kOperatorNamespace);
  make_namespace("training");
  install_permissive_crd("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor");
  install_permissive_crd("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule");
  for (const auto& flags : {kDefaultFlags, kAllFlags}) {
    const CommandResult outcome =
        control_plane().kubectl({"apply", "--dry-run=server", "--validate=strict", "--server-side",
                                 "-f", file("manifests.yaml", rendered_text(flags)).string()});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
    EXPECT_EQ(outcome.error, "") << "unexpected warnings";
  }
}

TEST_F(Chart, RunsUnderTheRestrictedPodSecurityStandard) {
  make_namespace(testing::kOperatorNamespace);
  for (const auto& flags : {kDefaultFlags, kAllFlags}) {
    for (const json& object : rendered(flags)) {
      if (object["kind"] != "Deployment") continue;
      json pod = object["spec"]["template"];
      pod["metadata"]["name"] = "controller";
      const std::string pods =
          std::string("/api/v1/namespaces/") + testing::kOperatorNamespace + "/pods?dryRun=All";
      const auto tried = admin().post(pods, pod);
      EXPECT_EQ(tried.status, 201) << tried.message();
      pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true;
      EXPECT_EQ(admin().post(pods, pod).status, 403) << "the standard is not enforced";
    }
  }
}

TEST_F(Chart, ContainsDashboardAndAlertsUnchanged) {
  const auto objects = rendered(kAllFlags);
  const json map = testing::find_only(objects, "ConfigMap", "tiles-dashboard");
  EXPECT_EQ(map["metadata"]["labels"]["grafana_dashboard"], "1");
  const fs::path folder = testing::chart_folder();
  EXPECT_EQ(json::parse(map["data"]["tilewright.json"].get<std::string>()),
            json::parse(testing::read_text(folder / "dashboards/tilewright.json")));
  const json rule = testing::find_only(objects, "PrometheusRule", "tiles");
  EXPECT_EQ(rule["spec"],
            read_yaml(testing::read_text(folder / "alerts/tilewright.rules.yaml")).tree);
}

class ClusterExamples : public testing::ChartTest {};

TEST_F(ClusterExamples, AreAcceptedUnderRestrictedPodSecurity) {
  make_namespace("examples");
  const fs::path folder = testing::source_dir() / "examples/cluster";
  const fs::path crd = file("crd.yaml", crd_source().dump());
  CommandResult outcome = control_plane().kubectl({"apply", "--server-side", "-f", crd.string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  outcome = control_plane().wait_for_crd(kCrdName);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    outcome = control_plane().kubectl({"create", "--dry-run=server", "--validate=strict",
                                       "--namespace=examples", "-f", entry.path().string()});
    EXPECT_EQ(outcome.exit_code, 0) << entry.path() << outcome.error;
    EXPECT_EQ(outcome.error, "") << "unexpected warnings";
  }
  EXPECT_EQ(files, 4);
}

TEST_F(ClusterExamples, HaveAJobThatValidateAccepts) {
  ChildCommand command;
  command.program = testing::program("tilewright");
  command.arguments = {"validate",
                       (testing::source_dir() / "examples/cluster/trainjob.yaml").string()};
  command.environment = environment_with_overrides({});
  const CommandResult outcome = testing::run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("runs on this machine and in a cluster"));
}

}  // namespace
}  // namespace tilewright
