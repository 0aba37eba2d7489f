#include "common/contract/repository_id.h"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(is_repository_id(std::string(97, 'a')));
}

}  // namespace
}  // namespace tilewright
