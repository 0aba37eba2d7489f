// The chart as helm renders it, held against the CRD, the code's own names and a real API server.
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
using testing::CommandOutcome;
using ::testing::HasSubstr;
using testing::kDefaults;
using testing::kEverything;

const std::string kCrdName = "trainjobs.tilewright.dev";

json crd_source() {
  return api::read_yaml(testing::read_text(testing::source_dir() / "crds" / (kCrdName + ".yaml")))
      .tree;
}

class Chart : public testing::ChartTest {};

TEST_F(Chart, PassesHelmsOwnChecks) {
  for (const auto& flags : {kDefaults, kEverything}) {
    std::vector<std::string> arguments = {"lint", testing::chart_folder().string(), "--strict",
                                          "--kube-version", "1.34.4"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandOutcome outcome = run("helm", arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  }
}

TEST_F(Chart, HoldsEveryValueToItsType) {
  const std::pair<const char*, const char*> wrong[] = {
      {"replicas=two", "replicas"},
      {"replica=2", "replica"},
      {"image.tag=a b", "tag"},
      {"image.repository=a:b", "repository"},
      {"image.digest=abc", "digest"},
      {"image.pullPolicy=Sometimes", "pullPolicy"},
      {"watchNamespace=A_b", "watchNamespace"},
      {"logLevel=loud", "logLevel"},
      {"rbac.podGroups=perhaps", "podGroups"},
      {"rbac.secrets=true", "secrets"},
      {"reconcilers=0", "reconcilers"},
      {"metrics.podMonitor.interval=often", "interval"},
      {"serviceAccount.create=false", "serviceAccount.name"}};
  for (const auto& [value, name] : wrong) {
    const CommandOutcome outcome = helm_template({"--set", value});
    EXPECT_NE(outcome.exit_code, 0) << value;
    EXPECT_THAT(outcome.error, HasSubstr(name)) << value;
  }
}

TEST_F(Chart, BringsTheCrdAsItIsInCrdsAndKeepsIt) {
  json crd = testing::only(rendered(kDefaults), "CustomResourceDefinition", kCrdName);
  EXPECT_EQ(crd["metadata"]["annotations"], (json{{"helm.sh/resource-policy", "keep"}}));
  crd["metadata"].erase("annotations");
  crd["metadata"].erase("labels");
  EXPECT_EQ(json::diff(crd_source(), crd), json::array());
}

TEST_F(Chart, PutsTheWorkersImageIntoTheCrdsDefault) {
  json crd = testing::only(rendered(kEverything), "CustomResourceDefinition", kCrdName);
  EXPECT_FALSE(crd["metadata"].contains("annotations")) << "crd.keep is false";
  json& image = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
                   ["properties"]["worker"]["properties"]["image"];
  EXPECT_EQ(image["default"], "registry.example:5000/ml/tilewright-worker:0.1.0");
  image["default"] = std::string("tilewright-worker:") + kVersion;
  crd["metadata"].erase("labels");
  EXPECT_EQ(json::diff(crd_source(), crd), json::array()) << "nothing else may differ";
}

TEST_F(Chart, LeavesOutTheCrdWhereItIsToldTo) {
  for (const json& object : rendered({"--set", "crd.install=false"})) {
    EXPECT_NE(object["kind"], "CustomResourceDefinition");
  }
}

// A checkout on a system without symbolic links has a file with the link's text in its place.
TEST_F(Chart, SaysWhatToDoWhereTheLinkToTheCrdDoesNotLeadThere) {
  const fs::path copy = folder() / "copy";
  fs::copy(testing::chart_folder(), copy, fs::copy_options::recursive);
  const fs::path file = copy / "files" / (kCrdName + ".yaml");
  fs::remove(file);
  CommandOutcome outcome = helm_template({}, copy);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("found nothing, expected the CRD"),
                                   HasSubstr("copy crds/" + kCrdName + ".yaml")));
  std::ofstream(file) << "../../../crds/" << kCrdName << ".yaml";
  outcome = helm_template({}, copy);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, HasSubstr("copy crds/" + kCrdName + ".yaml"));
}

TEST_F(Chart, RendersTheSameFromItsPackage) {
  const CommandOutcome packed = run(
      "helm", {"package", testing::chart_folder().string(), "--destination", folder().string()});
  ASSERT_EQ(packed.exit_code, 0) << packed.error;
  const fs::path package = folder() / ("tilewright-" + std::string(kVersion) + ".tgz");
  const CommandOutcome outcome = helm_template({}, package);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, rendered_text(kDefaults));
}

TEST_F(Chart, NamesThePortsAndLabelsThatTheProgramsHave) {
  const auto objects = rendered({"--set", "metrics.podMonitor.enabled=true"});
  const json deployment = testing::only(objects, "Deployment", "tilewright-controller");
  const json& container = deployment["spec"]["template"]["spec"]["containers"][0];
  EXPECT_EQ(container["image"], std::string("tilewright-controller:") + kVersion);
  std::map<std::string, int> ports;
  for (const json& port : container["ports"]) ports[port["name"]] = port["containerPort"];
  EXPECT_EQ(ports, (std::map<std::string, int>{{"rendezvous", kRendezvousPort},
                                               {"metrics", kControllerMetricsPort},
                                               {"health", kControllerHealthPort}}));
  const json rendezvous = testing::only(objects, "Service", "tilewright-rendezvous");
  EXPECT_FALSE(rendezvous["spec"].contains("selector")) << "the leader says where it leads";
  EXPECT_EQ(rendezvous["spec"]["ports"][0]["port"], kRendezvousPort);
  const json monitor = testing::only(objects, "PodMonitor", "tilewright-workers");
  EXPECT_EQ(
      monitor["spec"]["selector"]["matchLabels"],
      (json{{labels::kManagedBy, labels::kManagedByValue}, {labels::kRole, labels::kRoleWorker}}));
  EXPECT_EQ(monitor["spec"]["podMetricsEndpoints"][0]["port"], kMetricsPortName);
  const json service = testing::only(objects, "Service", "tilewright-metrics");
  const json labels = deployment["spec"]["template"]["metadata"]["labels"];
  for (const auto& [name, value] : service["spec"]["selector"].items()) {
    EXPECT_EQ(labels.value(name, ""), value);
  }
}

TEST_F(Chart, FitsTheServersOwnSchemasByKubeconform) {
  const testing::HttpResponse openapi = admin().get("/openapi/v2");
  ASSERT_TRUE(openapi.ok()) << openapi.body;
  const std::string location = testing::write_schemas(openapi.json(), folder() / "schemas");
  const auto check = [&](const std::string& manifests) {
    // No schema of the Prometheus operator's kinds is at hand.
    return run("kubeconform",
               {"-strict", "-summary", "-schema-location", location, "-skip",
                "PodMonitor,PrometheusRule", file("manifests.yaml", manifests).string()});
  };
  std::string text = rendered_text(kDefaults);
  CommandOutcome outcome = check(text);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("Invalid: 0, Errors: 0, Skipped: 0"));
  outcome = check(rendered_text(kEverything));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("Invalid: 0, Errors: 0, Skipped: 3"));
  // And it would notice.
  const std::size_t place = text.find("revisionHistoryLimit");
  ASSERT_NE(place, std::string::npos);
  outcome = check(text.replace(place, 8, "revision_"));
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
}

TEST_F(Chart, IsTakenByTheApiServer) {
  make_namespace(testing::kOperatorNamespace);
  make_namespace("training");
  stand_in("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor");
  stand_in("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule");
  for (const auto& flags : {kDefaults, kEverything}) {
    const CommandOutcome outcome =
        control_plane().kubectl({"apply", "--dry-run=server", "--validate=strict", "--server-side",
                                 "-f", file("manifests.yaml", rendered_text(flags)).string()});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.error;
    EXPECT_EQ(outcome.error, "") << "no warning either";
  }
}

TEST_F(Chart, RunsUnderTheRestrictedPodSecurityStandard) {
  make_namespace(testing::kOperatorNamespace);
  for (const auto& flags : {kDefaults, kEverything}) {
    for (const json& object : rendered(flags)) {
      if (object["kind"] != "Deployment") continue;
      json pod = object["spec"]["template"];
      pod["metadata"]["name"] = "controller";
      const std::string pods =
          std::string("/api/v1/namespaces/") + testing::kOperatorNamespace + "/pods?dryRun=All";
      const auto tried = admin().post(pods, pod);
      EXPECT_EQ(tried.status, 201) << tried.message();
      pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true;
      EXPECT_EQ(admin().post(pods, pod).status, 403) << "the standard is not enforced here";
    }
  }
}

TEST_F(Chart, CarriesDashboardAndAlertsUnchanged) {
  const auto objects = rendered(kEverything);
  const json map = testing::only(objects, "ConfigMap", "tiles-dashboard");
  EXPECT_EQ(map["metadata"]["labels"]["grafana_dashboard"], "1");
  const fs::path folder = testing::chart_folder();
  EXPECT_EQ(json::parse(map["data"]["tilewright.json"].get<std::string>()),
            json::parse(testing::read_text(folder / "dashboards/tilewright.json")));
  const json rule = testing::only(objects, "PrometheusRule", "tiles");
  EXPECT_EQ(rule["spec"],
            api::read_yaml(testing::read_text(folder / "alerts/tilewright.rules.yaml")).tree);
}

class ClusterExamples : public testing::ChartTest {};

TEST_F(ClusterExamples, AreTakenByTheApiServerUnderRestrictedPodSecurity) {
  make_namespace("examples");
  const fs::path folder = testing::source_dir() / "examples/cluster";
  const fs::path crd = file("crd.yaml", crd_source().dump());
  CommandOutcome outcome = control_plane().kubectl({"apply", "--server-side", "-f", crd.string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  outcome = control_plane().kubectl(
      {"wait", "crd/" + kCrdName, "--for=condition=Established", "--timeout=60s"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    outcome = control_plane().kubectl({"create", "--dry-run=server", "--validate=strict",
                                       "--namespace=examples", "-f", entry.path().string()});
    EXPECT_EQ(outcome.exit_code, 0) << entry.path() << outcome.error;
    EXPECT_EQ(outcome.error, "") << "no warning either";
  }
  EXPECT_EQ(files, 4);
}

TEST_F(ClusterExamples, HaveAJobThatValidateTakes) {
  ChildCommand command;
  command.program = testing::program("tilewright");
  command.arguments = {"validate",
                       (testing::source_dir() / "examples/cluster/trainjob.yaml").string()};
  command.environment = environment_with({});
  const CommandOutcome outcome = testing::run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("runs in a cluster"));
}

}  // namespace
}  // namespace tilewright
