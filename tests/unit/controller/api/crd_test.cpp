// Checks the generated CRD: the committed files are up to date, every field is described, and the
// schema agrees with the decoder, the encoder and the defaults. tests/integration compares its
// rules with validate() on a real API server.
#include "controller/api/crd.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <sstream>

#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "common/json/document.h"
#include "controller/api/command.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "tests/support/paths.h"

namespace tilewright::api {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json crd() { return trainjob_crd(); }

json root_schema() { return crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]; }

// The schema of a field: of spec.worker.env: schema["properties"]["worker"]["properties"]["env"].
json schema_of(const std::string& path) {
  json schema = root_schema();
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    EXPECT_TRUE(schema["properties"].contains(part)) << path << " lacks " << part;
    schema = json(schema["properties"][part]);
  }
  return schema;
}

// Calls `visit` with each property below `schema` and its path, except those inside podTemplate and
// metadata, which the decoder does not read.
void each_property(const json& schema, const std::string& path,
                   const std::function<void(const std::string&, const json&)>& visit) {
  if (schema.contains("items")) each_property(schema["items"], path, visit);
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, property] : properties.items()) {
    const std::string inner = path.empty() ? name : fmt::format("{}.{}", path, name);
    visit(inner, property);
    if (inner != "spec.worker.podTemplate" && inner != "metadata") {
      each_property(property, inner, visit);
    }
  }
}

// A value that the schema accepts. Lists have one element.
json example_of(const json& schema) {
  if (schema.contains("enum")) return schema["enum"][0];
  if (schema.value("x-kubernetes-int-or-string", false)) return 4;
  const std::string type = schema.value("type", "");
  if (type == "integer") return 4;  // within every flag's range
  if (type == "number") return 0.5;
  if (type == "boolean") return true;
  if (type == "array") return json::array({example_of(schema["items"])});
  if (type == "object") {
    json object = json::object();
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, property] : properties.items()) {
      object[name] = example_of(property);
    }
    if (schema.contains("additionalProperties")) {
      object["cpu"] = example_of(schema["additionalProperties"]);
    }
    return object;
  }
  if (schema.value("format", "") == "date-time") return "2026-01-31T23:59:59Z";
  return "a";
}

TEST(Crd, HasTheGroupVersionAndKindOfTheApi) {
  const json document = crd();
  EXPECT_EQ(document["metadata"]["name"], std::string(kTrainJobPlural) + "." + kApiGroup);
  EXPECT_EQ(document["spec"]["group"], kApiGroup);
  EXPECT_EQ(document["spec"]["names"]["kind"], kTrainJobKind);
  EXPECT_EQ(document["spec"]["names"]["plural"], kTrainJobPlural);
  EXPECT_EQ(
      std::string(kApiGroup) + "/" + document["spec"]["versions"][0]["name"].get<std::string>(),
      kApiVersion);
}

// `kubectl apply` stores a copy in an annotation, which holds at most 256 KiB.
TEST(Crd, IsSmallEnoughForKubectlApply) { EXPECT_LT(trainjob_crd_yaml().size(), 200'000u); }

TEST(Crd, MatchesTheCommittedFiles) {
  for (const char* file : {"crds/trainjobs.tilewright.dev.yaml",
                           "charts/tilewright/files/trainjobs.tilewright.dev.yaml"}) {
    const fs::path path = tilewright::testing::source_dir() / file;
    EXPECT_TRUE(tilewright::testing::read_text(path) == trainjob_crd_yaml())
        << file << " is out of date; run `make crd`";
  }
}

TEST(Crd, RoundTripsThroughYaml) {
  const Document document = read_yaml(trainjob_crd_yaml());
  ASSERT_TRUE(document.errors.empty()) << sentences(document.errors);
  EXPECT_EQ(document.tree, crd());
}

// The decoder reads every field of the schema, with the same type.
TEST(Crd, HasOnlyFieldsThatTheDecoderReads) {
  json object = example_of(root_schema());
  object["apiVersion"] = kApiVersion;
  object["kind"] = kTrainJobKind;
  object["metadata"] = {{"name", "a"}};
  object["spec"]["worker"]["env"][0].erase("valueFrom");
  object["spec"]["trainer"]["args"] = json::array();  // every flag is a field already
  const DecodeResult decoded = decode_object(object, FieldValidation::kStrict);
  for (const FieldError& error : decoded.errors) ADD_FAILURE() << error.sentence();
}

// The schema has every field that the encoder writes for a job with all fields set.
TEST(Crd, HasEveryFieldThatTheEncoderWrites) {
  json object = example_of(root_schema());
  object["apiVersion"] = kApiVersion;
  object["kind"] = kTrainJobKind;
  object["metadata"] = {{"name", "a"}};
  object["spec"]["worker"]["env"][0].erase("valueFrom");
  object["spec"]["trainer"]["args"] = json::array();  // every flag is a field already
  const json encoded = to_json(decode_object(object).job);
  const std::function<void(const json&, const json&, const std::string&)> compare =
      [&](const json& value, const json& schema, const std::string& path) {
        if (value.is_array()) {
          for (const json& element : value) compare(element, schema["items"], path + "[]");
        }
        if (!value.is_object() || schema.contains("additionalProperties") ||
            schema.value("x-kubernetes-preserve-unknown-fields", false)) {
          return;
        }
        for (const auto& [name, member] : value.items()) {
          const std::string inner = fmt::format("{}.{}", path, name);
          ASSERT_TRUE(schema["properties"].contains(name)) << inner;
          compare(member, schema["properties"][name], inner);
        }
      };
  for (const char* part : {"spec", "status"}) compare(encoded[part], schema_of(part), part);
  // Every field of the input is in the output.
  for (const char* part : {"elasticPolicy", "runPolicy", "worker"}) {
    const json in = object["spec"][part];
    EXPECT_EQ(encoded["spec"][part].size(), in.size()) << encoded["spec"][part];
  }
  EXPECT_EQ(encoded["status"].size(), object["status"].size()) << encoded["status"];
}

// Applies the defaults as the API server does.
void fill_defaults(json& object, const json& schema) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, property] : properties.items()) {
    if (!object.contains(name) && property.contains("default")) object[name] = property["default"];
    if (object.contains(name) && object[name].is_object()) fill_defaults(object[name], property);
  }
}

TEST(Crd, HasTheDefaultsOfApplyDefaults) {
  json object = {{"apiVersion", kApiVersion},
                 {"kind", kTrainJobKind},
                 {"metadata", {{"name", "a"}}},
                 {"spec", {{"trainer", json::object()}}}};
  TrainJob by_operator = decode_object(object).job;
  apply_defaults(by_operator);
  fill_defaults(object, root_schema());
  TrainJob by_api_server = decode_object(object, FieldValidation::kStrict).job;
  // The operator applies these defaults, because they depend on other fields.
  EXPECT_FALSE(by_api_server.spec.elastic_policy.min_replicas);
  EXPECT_FALSE(by_api_server.spec.elastic_policy.max_replicas);
  EXPECT_FALSE(by_api_server.spec.elastic_policy.max_restarts);
  by_api_server.spec.elastic_policy.min_replicas = by_api_server.spec.worker.replicas;
  by_api_server.spec.elastic_policy.max_replicas = by_api_server.spec.worker.replicas;
  by_api_server.spec.elastic_policy.max_restarts = kDefaultMaxRestarts;
  EXPECT_EQ(by_api_server, by_operator) << to_json(by_api_server) << "\n" << to_json(by_operator);
}

TEST(Crd, HasATypeAndADescriptionForEveryFlag) {
  const json trainer = schema_of("spec.trainer")["properties"];
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.in_manifest()) {
      EXPECT_FALSE(trainer.contains(flag.name)) << flag.name;
      continue;
    }
    ASSERT_TRUE(trainer.contains(flag.name)) << "the schema lacks spec.trainer." << flag.name;
    const json& schema = trainer[std::string(flag.name)];
    const char* type = flag.type == FlagType::kBool    ? "boolean"
                       : flag.type == FlagType::kInt   ? "integer"
                       : flag.type == FlagType::kFloat ? "number"
                                                       : "string";
    EXPECT_EQ(schema["type"], type) << flag.name;
    if (flag.type == FlagType::kChoice) {
      // Every word that the worker accepts: log_level has warning for warn.
      std::vector<std::string_view> words = flag.choices;
      for (const ChoiceSynonym& synonym : flag.synonyms) words.push_back(synonym.word);
      EXPECT_EQ(schema["enum"], json(words)) << flag.name;
      for (const std::string_view word : words) {
        EXPECT_TRUE(normalize_flag_value(flag, word).ok()) << flag.name << " " << word;
      }
    }
    const std::string description = schema.value("description", "");
    EXPECT_FALSE(description.empty()) << flag.name;
    if (!flag.reason_unused_in_job().empty()) {
      EXPECT_THAT(description, ::testing::HasSubstr(flag.reason_unused_in_job())) << flag.name;
    } else if (!describe_default(flag).empty()) {
      EXPECT_THAT(description,
                  ::testing::EndsWith(fmt::format("Default: {}.", describe_default(flag))))
          << flag.name;
    }
  }
  const std::string rule = trainer["args"]["items"]["x-kubernetes-validations"][0]["rule"];
  for (const TrainingFlag& flag : training_flags()) {
    EXPECT_THAT(rule, ::testing::HasSubstr(fmt::format("'__{}'", flag.name)));
  }
}

TEST(Crd, AcceptsStepsAsIntegersAndAsFractions) {
  const json schema = schema_of("spec.trainer")["properties"]["logging_steps"];
  EXPECT_EQ(schema["x-kubernetes-validations"][0]["rule"],
            "self > 0.0 && self < 1.0 || self >= 1.0 && self <= 1000000000000000.0 && self == "
            "double(int(self))");
}

TEST(Crd, RejectsTheVariablesOfTheRuntime) {
  const json env = schema_of("spec.worker.env");
  const std::string rule =
      env["items"]["properties"]["name"]["x-kubernetes-validations"][1]["rule"];
  for (const char* name : runtime_variables()) {
    EXPECT_THAT(rule, ::testing::HasSubstr(fmt::format("'{}'", name)));
  }
}

TEST(Crd, DescribesEveryField) {
  each_property(root_schema(), "", [](const std::string& path, const json& schema) {
    static const std::set<std::string> kPlain = {"apiVersion", "kind", "metadata"};
    if (kPlain.contains(path)) return;
    EXPECT_GT(schema.value("description", "").size(), 5u) << path;
  });
}

// Without a bound for each list and string, the CEL rules exceed the cost limit of the API server.
TEST(Crd, BoundsEveryListAndStringOfTheSpec) {
  each_property(root_schema(), "", [](const std::string& path, const json& schema) {
    if (!path.starts_with("spec.")) return;
    const std::string type = schema.value("type", "");
    EXPECT_TRUE(type != "array" || schema.contains("maxItems")) << path;
    EXPECT_TRUE(type != "string" || schema.contains("enum") || schema.contains("maxLength"))
        << path;
  });
}

}  // namespace
}  // namespace tilewright::api
