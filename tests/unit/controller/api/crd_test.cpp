// The CRD (crds/) and this room say the same of a TrainJob: fields, defaults, flags. What its rules
// refuse is held against validate() on a real API server, in tests/integration.
// GCC 12 takes std::regex for uninitialised under the address sanitizer (GCC bug 105562).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "controller/api/command.h"
#include "controller/api/defaults.h"
#include "controller/api/document.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "tests/support/paths.h"

namespace tilewright::api {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

fs::path crd_file() {
  return tilewright::testing::source_dir() / "crds/trainjobs.tilewright.dev.yaml";
}

json crd() {
  const Document document = read_yaml(tilewright::testing::read_text(crd_file()));
  EXPECT_TRUE(document.errors.empty()) << sentences(document.errors);
  return document.tree;
}

json root_schema() { return crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]; }

// Of spec.worker.env: schema["properties"]["worker"]["properties"]["env"].
json schema_of(const std::string& path) {
  json schema = root_schema();
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    EXPECT_TRUE(schema["properties"].contains(part)) << path << ": no " << part;
    schema = json(schema["properties"][part]);
  }
  return schema;
}

// Calls back with each property below `schema` and its path. Where other fields are kept as they
// come, the decoder does not look inside, and neither does this.
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

// Something of the type that the schema asks for, lists with one element.
json example_of(const json& schema) {
  if (schema.contains("enum")) return schema["enum"][0];
  if (schema.value("x-kubernetes-int-or-string", false)) return "1";
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

TEST(Crd, IsNamedAsTheContractSays) {
  const json document = crd();
  EXPECT_EQ(document["metadata"]["name"], std::string(kTrainJobPlural) + "." + kApiGroup);
  EXPECT_EQ(document["spec"]["group"], kApiGroup);
  EXPECT_EQ(document["spec"]["names"]["kind"], kTrainJobKind);
  EXPECT_EQ(document["spec"]["names"]["plural"], kTrainJobPlural);
  EXPECT_EQ(
      std::string(kApiGroup) + "/" + document["spec"]["versions"][0]["name"].get<std::string>(),
      kApiVersion);
  EXPECT_LT(fs::file_size(crd_file()), 100'000u);
}

// Every field that the API server takes is one that the decoder knows, with the same type.
TEST(Crd, HasNoFieldThatTheDecoderDoesNotKnow) {
  json object = example_of(root_schema());
  object["apiVersion"] = kApiVersion;
  object["kind"] = kTrainJobKind;
  object["metadata"] = {{"name", "a"}};
  object["spec"]["worker"]["env"][0].erase("valueFrom");
  const Decoded decoded = decode_object(object, true);
  for (const FieldError& error : decoded.errors) ADD_FAILURE() << error.sentence();
}

// Every name that the decoder asks for stands in the schema. The names are read off its source, so
// that a new one cannot be forgotten here.
TEST(Crd, HasEveryFieldThatTheDecoderKnows) {
  std::set<std::string> properties;
  each_property(root_schema(), "", [&](const std::string& path, const json&) {
    properties.insert(path.substr(path.rfind('.') + 1));
  });
  const std::regex taken(
      R"((?:fields|inner)\.(?:text|texts|boolean|integer|number|choice|quantity|timestamp|object|each_object|raw_object|raw_list|text_map|take|ignore)\(\s*"(\w+)\")");
  int seen = 0;
  for (const char* file : {"decode.cpp", "decode_status.cpp"}) {
    const std::string source =
        tilewright::testing::read_text(tilewright::testing::source_dir() / "controller/api" / file);
    for (std::sregex_iterator it(source.begin(), source.end(), taken), end; it != end; ++it) {
      ++seen;
      EXPECT_TRUE(properties.contains((*it)[1])) << file << " takes " << (*it)[1];
    }
  }
  EXPECT_GT(seen, 80) << "the scan found hardly any fields: has the decoder changed its ways?";
}

// In the other direction by value: what the encoder writes of a full job has its place.
TEST(Crd, TakesAllThatTheEncoderWrites) {
  json object = example_of(root_schema());
  object["apiVersion"] = kApiVersion;
  object["kind"] = kTrainJobKind;
  object["metadata"] = {{"name", "a"}};
  object["spec"]["worker"]["env"][0].erase("valueFrom");
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
  // The job had everything in it: what comes out has as many places as what went in.
  for (const char* part : {"elasticPolicy", "runPolicy", "worker"}) {
    const json in = object["spec"][part];
    EXPECT_EQ(encoded["spec"][part].size(), in.size()) << encoded["spec"][part];
  }
  EXPECT_EQ(encoded["status"].size(), object["status"].size()) << encoded["status"];
}

// What the API server fills in, as structural schemas have it.
void fill_defaults(json& object, const json& schema) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, property] : properties.items()) {
    if (!object.contains(name) && property.contains("default")) object[name] = property["default"];
    if (object.contains(name) && object[name].is_object()) fill_defaults(object[name], property);
  }
}

TEST(Crd, FillsInWhatApplyDefaultsDoes) {
  json object = {{"apiVersion", kApiVersion},
                 {"kind", kTrainJobKind},
                 {"metadata", {{"name", "a"}}},
                 {"spec", {{"trainer", json::object()}}}};
  TrainJob ours = decode_object(object).job;
  apply_defaults(ours);
  fill_defaults(object, root_schema());
  TrainJob theirs = decode_object(object, true).job;
  // These hang on other fields, which a schema's defaults cannot: they stay for the operator.
  EXPECT_FALSE(theirs.spec.elastic_policy.min_replicas);
  EXPECT_FALSE(theirs.spec.elastic_policy.max_replicas);
  EXPECT_FALSE(theirs.spec.elastic_policy.max_restarts);
  theirs.spec.elastic_policy.min_replicas = theirs.spec.worker.replicas;
  theirs.spec.elastic_policy.max_replicas = theirs.spec.worker.replicas;
  theirs.spec.elastic_policy.max_restarts = kDefaultMaxRestarts;
  EXPECT_EQ(theirs, ours) << to_json(theirs) << "\n" << to_json(ours);
}

TEST(Crd, HasATypeAndAWordForEveryFlag) {
  const json trainer = schema_of("spec.trainer")["properties"];
  std::set<std::string> args_refused;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.set_by_runtime) {
      EXPECT_FALSE(trainer.contains(flag.name)) << flag.name;
      continue;
    }
    args_refused.insert("--" + std::string(flag.name));
    ASSERT_TRUE(trainer.contains(flag.name)) << "crds/ lacks spec.trainer." << flag.name;
    const json& schema = trainer[std::string(flag.name)];
    const char* type = flag.type == FlagType::kBool    ? "boolean"
                       : flag.type == FlagType::kInt   ? "integer"
                       : flag.type == FlagType::kFloat ? "number"
                                                       : "string";
    EXPECT_EQ(schema["type"], type) << flag.name;
    if (flag.type == FlagType::kChoice) {
      EXPECT_EQ(schema["enum"], json(flag.choices)) << flag.name;
    }
    const std::string description = schema.value("description", "");
    EXPECT_FALSE(description.empty()) << flag.name;
    if (!flag.default_value.empty()) {
      EXPECT_THAT(description, ::testing::EndsWith(fmt::format("Default: {}.", flag.default_value)))
          << flag.name;
    }
  }
  // The same flags are refused among the args.
  const std::string rule = trainer["args"]["items"]["x-kubernetes-validations"][1]["rule"];
  std::set<std::string> listed;
  const std::regex word("'(--\\w+)'");
  for (std::sregex_iterator it(rule.begin(), rule.end(), word), end; it != end; ++it) {
    listed.insert((*it)[1]);
  }
  EXPECT_EQ(listed, args_refused);
}

// The words in quotes of a rule.
std::set<std::string> words_of(const std::string& rule) {
  std::set<std::string> words;
  const std::regex word("'([A-Z_]+)'");
  for (std::sregex_iterator it(rule.begin(), rule.end(), word), end; it != end; ++it) {
    words.insert((*it)[1]);
  }
  return words;
}

TEST(Crd, RefusesTheVariablesThatTheRuntimeSets) {
  const json env = schema_of("spec.worker.env");
  const std::set<std::string> refused =
      words_of(env["items"]["properties"]["name"]["x-kubernetes-validations"][1]["rule"]);
  const std::string contract = tilewright::testing::read_text(tilewright::testing::source_dir() /
                                                              "common/contract/environment.h");
  std::set<std::string> expected;
  const std::regex name("\"([A-Z_]+)\"");
  for (std::sregex_iterator it(contract.begin(), contract.end(), name), end; it != end; ++it) {
    if (is_runtime_variable((*it)[1].str())) expected.insert((*it)[1]);
  }
  EXPECT_EQ(refused, expected);
}

TEST(Crd, DescribesEveryField) {
  each_property(root_schema(), "", [](const std::string& path, const json& schema) {
    static const std::set<std::string> kPlain = {"apiVersion", "kind", "metadata"};
    if (kPlain.contains(path)) return;
    EXPECT_GT(schema.value("description", "").size(), 5u) << path;
  });
}

// A list or a text without a bound makes the rules below it too costly for the API server.
TEST(Crd, BoundsEveryListAndTextOfTheSpec) {
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
