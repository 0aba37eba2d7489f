#include "controller/api/json_members.h"

#include <gtest/gtest.h>

namespace tilewright::api {
namespace {

using nlohmann::json;

TEST(Member, IsNullWhereThereIsNone) {
  const json object = {{"spec", {{"nodeName", "n"}}}, {"kind", "Pod"}, {"list", {1, 2}}};
  EXPECT_EQ(&member(object, "spec"), &object["spec"]);
  EXPECT_EQ(member(member(object, "spec"), "nodeName"), "n");
  EXPECT_TRUE(member(object, "status").is_null());
  EXPECT_TRUE(member(member(object, "status"), "phase").is_null());
  EXPECT_TRUE(member(member(object, "kind"), "a").is_null()) << "of a text";
  EXPECT_TRUE(member(member(object, "list"), "a").is_null()) << "of a list";
}

TEST(TextMember, IsEmptyUnlessItIsText) {
  const json object = {{"text", "a"}, {"number", 1}, {"nothing", nullptr}};
  EXPECT_EQ(text_member(object, "text"), "a");
  for (const char* name : {"number", "nothing", "missing"}) {
    EXPECT_EQ(text_member(object, name), "") << name;
  }
  EXPECT_EQ(text_member("text", "text"), "");
}

TEST(MetadataText, NeedsMetadata) {
  EXPECT_EQ(metadata_text({{"metadata", {{"name", "a"}}}}, "name"), "a");
  EXPECT_EQ(metadata_text({{"metadata", "name"}}, "name"), "");
  EXPECT_EQ(metadata_text({{"name", "a"}}, "name"), "");
}

}  // namespace
}  // namespace tilewright::api
