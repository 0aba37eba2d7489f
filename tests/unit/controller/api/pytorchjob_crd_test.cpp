// Checks the generated CRD of PyTorchJob: the committed file is up to date, and its names, columns
// and types are those of Kubeflow's training operator v1.9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "controller/api/crd.h"
#include "tests/support/paths.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

json version() { return pytorchjob_crd()["spec"]["versions"][0]; }

// "integer int32", "string", "list of object", "map of object"
std::string type_at(const std::string& path) {
  json schema = version()["schema"]["openAPIV3Schema"];
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (part == "*") {
      schema = json(schema.contains("items") ? schema["items"] : schema["additionalProperties"]);
    } else {
      EXPECT_TRUE(schema["properties"].contains(part)) << path << " lacks " << part;
      schema = json(schema["properties"][part]);
    }
  }
  std::string type = schema.value("type", "int-or-string");
  if (schema.contains("format")) type += " " + schema["format"].get<std::string>();
  return type;
}

TEST(PyTorchJobCrd, MatchesTheCommittedFile) {
  const auto path = tilewright::testing::source_dir() / "crds/pytorchjobs.kubeflow.org.yaml";
  EXPECT_TRUE(tilewright::testing::read_text(path) == pytorchjob_crd_yaml())
      << path << " is out of date; run `make crd`";
}

TEST(PyTorchJobCrd, HasTheNamesOfKubeflow) {
  const json crd = pytorchjob_crd();
  EXPECT_EQ(crd["metadata"]["name"], "pytorchjobs.kubeflow.org");
  EXPECT_EQ(crd["spec"]["group"], "kubeflow.org");
  EXPECT_EQ(crd["spec"]["scope"], "Namespaced");
  EXPECT_EQ(crd["spec"]["names"],
            json::parse(R"({"kind": "PyTorchJob", "listKind": "PyTorchJobList",
      "plural": "pytorchjobs", "singular": "pytorchjob"})"));
  EXPECT_EQ(crd["spec"]["versions"].size(), 1u);
  EXPECT_EQ(version()["name"], "v1");
  EXPECT_EQ(version()["subresources"], json::parse(R"({"status": {}, "scale": {
      "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
      "statusReplicasPath": ".status.replicaStatuses.Worker.active",
      "labelSelectorPath": ".status.replicaStatuses.Worker.selector"}})"));
  // The columns of `kubectl get` without -o wide.
  json shown = json::array();
  const json columns = version()["additionalPrinterColumns"];
  for (const json& column : columns) {
    if (column.value("priority", 0) == 0) {
      shown.push_back({column["name"], column["type"], column["jsonPath"]});
    }
  }
  EXPECT_EQ(shown, json::parse(R"([["State", "string", ".status.conditions[-1:].type"],
                                   ["Age", "date", ".metadata.creationTimestamp"]])"));
}

TEST(PyTorchJobCrd, HasTheTypesOfKubeflow) {
  const std::pair<const char*, const char*> types[] = {
      {"spec.nprocPerNode", "string"},
      {"spec.elasticPolicy.minReplicas", "integer int32"},
      {"spec.elasticPolicy.maxReplicas", "integer int32"},
      {"spec.elasticPolicy.maxRestarts", "integer int32"},
      {"spec.elasticPolicy.nProcPerNode", "integer int32"},
      {"spec.elasticPolicy.rdzvPort", "integer int32"},
      {"spec.elasticPolicy.rdzvBackend", "string"},
      {"spec.elasticPolicy.rdzvHost", "string"},
      {"spec.elasticPolicy.rdzvId", "string"},
      {"spec.elasticPolicy.rdzvConf", "array"},
      {"spec.elasticPolicy.rdzvConf.*.key", "string"},
      {"spec.elasticPolicy.rdzvConf.*.value", "string"},
      {"spec.elasticPolicy.standalone", "boolean"},
      {"spec.elasticPolicy.metrics", "array"},
      {"spec.elasticPolicy.metrics.*", "object"},
      {"spec.pytorchReplicaSpecs", "object"},
      {"spec.pytorchReplicaSpecs.*.replicas", "integer int32"},
      {"spec.pytorchReplicaSpecs.*.restartPolicy", "string"},
      {"spec.pytorchReplicaSpecs.*.template", "object"},
      {"spec.runPolicy.activeDeadlineSeconds", "integer int64"},
      {"spec.runPolicy.backoffLimit", "integer int32"},
      {"spec.runPolicy.cleanPodPolicy", "string"},
      {"spec.runPolicy.managedBy", "string"},
      {"spec.runPolicy.suspend", "boolean"},
      {"spec.runPolicy.ttlSecondsAfterFinished", "integer int32"},
      {"spec.runPolicy.schedulingPolicy.minAvailable", "integer int32"},
      {"spec.runPolicy.schedulingPolicy.minResources.*", "int-or-string"},
      {"spec.runPolicy.schedulingPolicy.priorityClass", "string"},
      {"spec.runPolicy.schedulingPolicy.queue", "string"},
      {"spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", "integer int32"},
      {"status.conditions.*.type", "string"},
      {"status.conditions.*.status", "string"},
      {"status.conditions.*.reason", "string"},
      {"status.conditions.*.message", "string"},
      {"status.conditions.*.lastUpdateTime", "string date-time"},
      {"status.conditions.*.lastTransitionTime", "string date-time"},
      {"status.replicaStatuses.*.active", "integer int32"},
      {"status.replicaStatuses.*.succeeded", "integer int32"},
      {"status.replicaStatuses.*.failed", "integer int32"},
      {"status.replicaStatuses.*.selector", "string"},
      {"status.startTime", "string date-time"},
      {"status.completionTime", "string date-time"},
      {"status.lastReconcileTime", "string date-time"},
  };
  for (const auto& [path, type] : types) EXPECT_EQ(type_at(path), type) << path;
}

// Types only: like Kubeflow's, the CRD takes every value, and requires pytorchReplicaSpecs alone.
TEST(PyTorchJobCrd, RestrictsNoValues) {
  const std::function<void(const json&, const std::string&)> check = [&](const json& schema,
                                                                         const std::string& path) {
    for (const char* limit : {"enum", "minimum", "maximum", "maxLength", "maxItems",
                              "maxProperties", "pattern", "default"}) {
      EXPECT_FALSE(schema.contains(limit)) << path << " has " << limit;
    }
    if (schema.contains("required")) {
      const bool known = path == ".spec" || path.ends_with(".conditions.*");
      EXPECT_TRUE(known) << path << " requires " << schema["required"];
    }
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, property] : properties.items()) {
      // The operator alone writes it.
      if (name == "tilewright") continue;
      EXPECT_FALSE(path.starts_with(".spec") && property.value("description", "").empty())
          << path << "." << name << " has no description";
      check(property, path + "." + name);
    }
    for (const char* inner : {"items", "additionalProperties"}) {
      if (schema.contains(inner)) check(schema[inner], path + ".*");
    }
  };
  check(version()["schema"]["openAPIV3Schema"], "");
  EXPECT_EQ(version()["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"],
            json::array({"pytorchReplicaSpecs"}));
}

TEST(PyTorchJobCrd, IsSmallEnoughForKubectlApply) {
  EXPECT_LT(pytorchjob_crd_yaml().size(), 200'000u);
}

}  // namespace
}  // namespace tilewright::api
