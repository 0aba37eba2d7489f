#include "common/net/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::net {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class KeyFile : public ::testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "key"; }
  std::string text() const { return testing::read_text(path()); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  testing::TemporaryDirectory folder_;
};

TEST_F(KeyFile, HoldsAWholeKeyForItsOwnerOnly) {
  EXPECT_FALSE(holds_whole_key(path()));
  ASSERT_TRUE(create_key_file(path()).ok());
  EXPECT_THAT(text(), MatchesRegex("[0-9a-f]{64}"));
  EXPECT_TRUE(holds_whole_key(path()));
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 1U) << "no other file remains";
}

TEST_F(KeyFile, IsKeptByCreateAndReplacedByReplace) {
  std::ofstream(path()) << "a secret of the user";
  ASSERT_TRUE(create_key_file(path()).ok());
  EXPECT_EQ(text(), "a secret of the user");
  EXPECT_FALSE(holds_whole_key(path()));
  ASSERT_TRUE(replace_key_file(path()).ok());
  EXPECT_TRUE(holds_whole_key(path()));
  const std::string key = text();
  ASSERT_TRUE(create_key_file(path()).ok());
  EXPECT_EQ(text(), key);
  ASSERT_TRUE(replace_key_file(path()).ok());
  EXPECT_NE(text(), key);
  EXPECT_EQ(files(), 1U);
}

TEST_F(KeyFile, NamesAPathThatCannotBeWritten) {
  const fs::path missing = folder_.path() / "none" / "key";
  const Status status = create_key_file(missing);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr(missing.string() + ": cannot write the key: No such file"));
  fs::create_directory(path());
  EXPECT_FALSE(replace_key_file(path()).ok());
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace tilewright::net
