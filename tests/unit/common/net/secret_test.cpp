#include "common/net/secret.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/support/paths.h"
#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

TEST(Hmac, MatchesTheRfcTestVector) {  // RFC 4231, test case 3
  const SecretKey key = key_of(std::string(20, '\xaa'));
  std::string hex;
  for (const unsigned char byte : hmac_sha256(key, std::string(50, '\xdd'))) {
    hex += fmt::format("{:02x}", byte);
  }
  EXPECT_EQ(hex, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

TEST(SecretKey, ReadsFileBytesVerbatim) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "secret";
  std::ofstream(path) << kSecret << '\n';
  const auto key = SecretKey::from_file(path);
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(std::ranges::equal(key->bytes(), key_of(kSecret + "\n").bytes()));
}

TEST(SecretKey, RejectsBadSizesWithoutPrintingTheSecret) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "secret";
  for (const std::size_t size : {std::size_t{0}, std::size_t{15}, std::size_t{4097}}) {
    // Of no letter, because random ones name the directory.
    std::ofstream(path) << std::string(size, '%');
    const auto key = SecretKey::from_file(path);
    ASSERT_FALSE(key.ok());
    EXPECT_EQ(key.error().code, ExitCode::kUsage);
    EXPECT_NE(key.error().message.find(path.string()), std::string::npos);
    EXPECT_EQ(key.error().message.find("%%"), std::string::npos);
  }
  EXPECT_FALSE(SecretKey::from_file(directory.path() / "none").ok());
  EXPECT_FALSE(SecretKey::from_file(directory.path()).ok());
}

TEST(SecretKey, RandomKeysDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const SecretKey key = SecretKey::random();
    seen.emplace(key.bytes().begin(), key.bytes().end());
  }
  EXPECT_EQ(seen.size(), 100u);
}

}  // namespace
}  // namespace tilewright::net
