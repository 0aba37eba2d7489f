#include "common/contract/repository_id.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace tilewright {
namespace {

TEST(RepositoryId, IsNameOrOrganizationAndName) {
  for (const char* id : {"bert-base-uncased", "google-bert/bert-base-uncased", "a", "A/b_c.d-1"}) {
    EXPECT_TRUE(is_repository_id(id)) << id;
  }
  for (const char* id : {"", "/", "a/", "/a", "a/b/c", "a b", "..", "../a", "a/..", "a--b", ".a",
                         "a.", "-a", "a-", "~/model", "a\nb", "a?b", "a%2fb"}) {
    EXPECT_FALSE(is_repository_id(id)) << id;
  }
}

// huggingface_hub.validate_repo_id limits only the name.
TEST(RepositoryId, HasANameOfAtMost96Characters) {
  const std::regex pattern{std::string(kRepositoryIdPattern)};
  const std::string longest(96, 'a');
  for (const std::string& id : {longest, "org/" + longest, "a-long-organization/" + longest}) {
    EXPECT_TRUE(is_repository_id(id)) << id;
    EXPECT_TRUE(std::regex_match(id, pattern)) << id;
  }
  for (const std::string& id : {longest + "a", "org/a" + longest}) {
    EXPECT_FALSE(is_repository_id(id)) << id;
    EXPECT_FALSE(std::regex_match(id, pattern)) << id;
  }
}

}  // namespace
}  // namespace tilewright
