// Answers as trees: what is left out of them, and nothing else.
#include "controller/kube/answer_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace tilewright::kube {
namespace {

using nlohmann::json;

// Somebody's own members of that name stay: in data, among labels, beneath spec.
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

// Whatever the order in which the server writes an object's members.
std::string reversed(const json& tree) {
  if (!tree.is_object()) return tree.dump();
  std::vector<std::string> members;
  for (const auto& [name, value] : tree.items()) {
    members.push_back(fmt::format("{}:{}", json(name).dump(), reversed(value)));
  }
  return fmt::format("{{{}}}", fmt::join(members.rbegin(), members.rend(), ","));
}

TEST(AnswerJson, LeavesOutWhoManagesAnObjectsFieldsAndNothingElse) {
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

TEST(AnswerJson, KeepsWhatIsWantedOfEachSection) {
  json wanted = object(false);
  wanted["metadata"] = {{"name", "x"}};
  wanted["spec"].erase("metadata");
  for (const std::string& text : {object(true).dump(), reversed(object(true))}) {
    EXPECT_EQ(parse_object(text, name_and_spec_template), wanted);
    EXPECT_EQ(parse_event(R"({"object":)" + text + "}", name_and_spec_template),
              json({{"object", wanted}}));
    std::vector<json> items;
    const std::string list =
        fmt::format(R"({{"metadata":{{"continue":"c","name":{{"a":{{"b":1}}}}}},"items":[{},{}]}})",
                    text, text);
    const json rest = parse_list(
        list, [&](json&& one) { items.push_back(std::move(one)); }, name_and_spec_template);
    EXPECT_EQ(items, std::vector<json>(2, wanted));
    EXPECT_EQ(rest["metadata"], json::parse(R"({"continue":"c","name":{"a":{"b":1}}})"))
        << "the list's own is not an object's";
  }
}

TEST(AnswerJson, HandsTheItemsOfAListOver) {
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

TEST(AnswerJson, SaysWhatIsNoJson) {
  for (const char* text : {"", "{", "{]", R"({"metadata":{"managedFields":[}})", "{} {}"}) {
    EXPECT_TRUE(parse_object(text).is_discarded()) << text;
    EXPECT_TRUE(parse_list(text, [](json&&) {}).is_discarded()) << text;
  }
  EXPECT_EQ(parse_object("3"), 3);
  EXPECT_EQ(parse_list(R"({"items":null})", [](json&&) { FAIL(); }), json({{"items", nullptr}}));
}

}  // namespace
}  // namespace tilewright::kube
