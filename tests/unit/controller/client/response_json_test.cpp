// Tests of response parsing: the filter drops exactly the unwanted fields.
#include "controller/client/response_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace tilewright::kube {
namespace {

using nlohmann::json;

// User data with the name managedFields is kept: in data, labels and spec.
json object(bool managed) {
  json made = json::parse(R"({
    "kind": "ConfigMap",
    "metadata": {
      "annotations": {"a": "b"},
      "labels": {"managedFields": "mine"},
      "name": "x",
      "ownerReferences": [{"uid": "u"}]
    },
    "data": {"managedFields": "mine", "metadata": "mine"},
    "spec": {"template": {"metadata": {"managedFields": [1, {"a": 2}]}}, "metadata": {"name": "n"}},
    "status": [[], {}, 1, true, null, "text"]
  })");
  if (managed) {
    made["metadata"]["managedFields"] = json::parse(R"([
      {"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:n": [1, []]}},
      {"manager": "metadata", "metadata": {"managedFields": [2]}, "items": [{}]}
    ])");
  }
  return made;
}

// The same JSON with the members of each object in reverse order.
std::string reversed(const json& tree) {
  if (!tree.is_object()) return tree.dump();
  std::vector<std::string> members;
  for (const auto& [name, value] : tree.items()) {
    members.push_back(fmt::format("{}:{}", json(name).dump(), reversed(value)));
  }
  return fmt::format("{{{}}}", fmt::join(members.rbegin(), members.rend(), ","));
}

TEST(ResponseJson, DropsOnlyManagedFields) {
  for (const std::string& text : {object(true).dump(), reversed(object(true)), object(true).dump(2),
                                  object(false).dump(), reversed(object(false))}) {
    EXPECT_EQ(parse_object(text), object(false)) << text;
    EXPECT_EQ(parse_event(R"({"type":"ADDED","object":)" + text + "}"),
              json({{"type", "ADDED"}, {"object", object(false)}}));
  }
}

bool name_and_spec_template(std::string_view section, std::string_view member) {
  return section == "metadata" ? member == "name" : section != "spec" || member == "template";
}

TEST(ResponseJson, KeepsTheFieldsThatPassTheFilter) {
  json expected = object(false);
  expected["metadata"] = {{"name", "x"}};
  expected["spec"].erase("metadata");
  for (const std::string& text : {object(true).dump(), reversed(object(true))}) {
    EXPECT_EQ(parse_object(text, name_and_spec_template), expected);
    EXPECT_EQ(parse_event(R"({"object":)" + text + "}", name_and_spec_template),
              json({{"object", expected}}));
    std::vector<json> items;
    const std::string list =
        fmt::format(R"({{"metadata":{{"continue":"c","name":{{"a":{{"b":1}}}}}},"items":[{},{}]}})",
                    text, text);
    const json rest = parse_list(
        list, [&](json&& one) { items.push_back(std::move(one)); }, name_and_spec_template);
    EXPECT_EQ(items, std::vector<json>(2, expected));
    EXPECT_EQ(rest["metadata"], json::parse(R"({"continue":"c","name":{"a":{"b":1}}})"))
        << "the metadata of the list is not filtered";
  }
}

TEST(ResponseJson, PassesListItemsToTheCallback) {
  const std::string item = object(true).dump();
  for (const std::string& text :
       {fmt::format(R"({{"kind":"L","metadata":{{"continue":"c"}},"items":[{},{}]}})", item, item),
        fmt::format(R"({{"items":[{},{}],"metadata":{{"continue":"c"}},"kind":"L"}})", item,
                    item)}) {
    std::vector<json> items;
    const json rest = parse_list(text, [&](json&& one) { items.push_back(std::move(one)); });
    EXPECT_EQ(items, std::vector<json>(2, object(false)));
    EXPECT_EQ(rest,
              json({{"kind", "L"}, {"metadata", {{"continue", "c"}}}, {"items", json::array()}}));
  }
}

TEST(ResponseJson, RejectsInvalidJson) {
  for (const char* text : {"", "{", "{]", R"({"metadata":{"managedFields":[}})", "{} {}"}) {
    EXPECT_TRUE(parse_object(text).is_discarded()) << text;
    EXPECT_TRUE(parse_list(text, [](json&&) {}).is_discarded()) << text;
  }
  EXPECT_EQ(parse_object("3"), 3);
  EXPECT_EQ(parse_list(R"({"items":null})", [](json&&) { FAIL(); }), json({{"items", nullptr}}));
}

std::string nested(int levels) {
  const auto count = static_cast<std::size_t>(levels);
  std::string text;
  for (int i = 0; i < levels; ++i) text += R"({"a":)";
  return text + "1" + std::string(count, '}');
}

// As deep as Go's JSON decoder allows.
TEST(ResponseJson, ReplacesASectionThatIsNestedTooDeeply) {
  const std::string deep =
      R"({"metadata":{"name":"deep"},"spec":{"b":2,"c":)" + nested(9990) + R"(},"status":{"d":3}})";
  const json expected = {
      {"metadata", {{"name", "deep"}}}, {"spec", kTooDeep}, {"status", {{"d", 3}}}};
  EXPECT_EQ(parse_object(deep), expected);
  EXPECT_EQ(parse_event(R"({"type":"ADDED","object":)" + deep + "}"),
            json({{"type", "ADDED"}, {"object", expected}}));
  std::vector<json> items;
  const json list = parse_list(R"({"items":[)" + deep + "," + object(false).dump() + "]}",
                               [&](json&& item) { items.push_back(std::move(item)); });
  EXPECT_EQ(list, json({{"items", json::array()}}));
  EXPECT_EQ(items, (std::vector<json>{expected, object(false)}));
}

TEST(ResponseJson, KeepsASectionOfTheLargestDepth) {
  const json kept = json::parse(R"({"spec":)" + nested(kMaxJsonDepth - 1) + "}");
  EXPECT_EQ(parse_object(kept.dump()), kept);
  EXPECT_EQ(parse_object(R"({"spec":)" + nested(kMaxJsonDepth) + "}"), json({{"spec", kTooDeep}}));
}

}  // namespace
}  // namespace tilewright::kube
