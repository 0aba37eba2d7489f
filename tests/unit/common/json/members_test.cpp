#include "common/json/members.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

using nlohmann::json;

TEST(Member, IsNullIfMissing) {
  const json object = {{"spec", {{"nodeName", "n"}}}, {"kind", "Pod"}, {"list", {1, 2}}};
  EXPECT_EQ(&member(object, "spec"), &object["spec"]);
  EXPECT_EQ(member(member(object, "spec"), "nodeName"), "n");
  EXPECT_TRUE(member(object, "status").is_null());
  EXPECT_TRUE(member(member(object, "status"), "phase").is_null());
  EXPECT_TRUE(member(member(object, "kind"), "a").is_null()) << "member of a string";
  EXPECT_TRUE(member(member(object, "list"), "a").is_null()) << "member of an array";
}

TEST(StringMember, IsEmptyUnlessItIsAString) {
  const json object = {{"text", "a"}, {"number", 1}, {"nothing", nullptr}};
  EXPECT_EQ(string_member(object, "text"), "a");
  for (const char* name : {"number", "nothing", "missing"}) {
    EXPECT_EQ(string_member(object, name), "") << name;
  }
  EXPECT_EQ(string_member("text", "text"), "");
}

TEST(ElementWith, IsTheFirstWithTheValue) {
  const json list =
      json::parse(R"([7, {"name": 7}, {"name": "a", "n": 1}, {"name": "a", "n": 2}])");
  EXPECT_EQ(element_with(list, "name", "a")["n"], 1);
  EXPECT_TRUE(element_with(list, "name", "b").is_null());
  for (const json& other : {json(), json(7), json{{"name", "a"}}}) {
    EXPECT_TRUE(element_with(other, "name", "a").is_null()) << other;
  }
}

TEST(MetadataString, IsEmptyWithoutMetadata) {
  EXPECT_EQ(metadata_string({{"metadata", {{"name", "a"}}}}, "name"), "a");
  EXPECT_EQ(metadata_string({{"metadata", "name"}}, "name"), "");
  EXPECT_EQ(metadata_string({{"name", "a"}}, "name"), "");
}

}  // namespace
}  // namespace tilewright
