#include "worker/hub/redact.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewright::hub {
namespace {

TEST(Redact, ReplacesEachOccurrenceOfEachSecret) {
  const std::vector<std::string> secrets = {"", "one", "two"};
  EXPECT_EQ(redact("one two oneone three", secrets), "*** *** ****** three");
}

TEST(Redact, FindsCredentialsUpToTheLastAt) {
  EXPECT_EQ(credentials("http://user:pass@host:1/path"), "user:pass");
  EXPECT_EQ(credentials("http://user:p@ss/w@host"), "user:p@ss/w");
  EXPECT_EQ(credentials("user@host"), "user");
  EXPECT_EQ(credentials("http://host:1"), "");
  EXPECT_EQ(credentials("@http://host"), "");
}

TEST(Redact, ShowsTheRestOfAUrl) {
  EXPECT_EQ(redact_url("https://user:pass@host/path?token=x"), "https://***@host/path?***");
  EXPECT_EQ(redact_url("https://host/path"), "https://host/path");
}

}  // namespace
}  // namespace tilewright::hub
