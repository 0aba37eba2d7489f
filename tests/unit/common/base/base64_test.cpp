#include "common/base/base64.h"

#include <gtest/gtest.h>

#include <utility>

namespace tilewright {
namespace {

TEST(Base64, FollowsRfc4648) {
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(decode_base64(text), bytes);
    EXPECT_EQ(encode_base64(bytes), text);
  }
  EXPECT_EQ(decode_base64("Zm9v\nYmFy\r\n"), "foobar");
  EXPECT_FALSE(decode_base64("Zg="));
  EXPECT_FALSE(decode_base64("Z*=="));
}

}  // namespace
}  // namespace tilewright
