#include "common/base/printable.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(Printable, KeepsTextWithoutControlCharacters) {
  EXPECT_EQ(printable("caf\xC3\xA9 \xE4\xB8\xAD \xC2\xA0 \\n \"x\""),
            "caf\xC3\xA9 \xE4\xB8\xAD \xC2\xA0 \\n \"x\"");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\x9b31m")
      << "C1 CSI";
  EXPECT_EQ(printable("\xC2"), "\xC2");
}

TEST(Printable, KeepsLineFeedsOfSeveralLines) {
  EXPECT_EQ(printable("one\ntwo\x1b", Lines::kSeveral), "one\ntwo\\x1b");
}

}  // namespace
}  // namespace tilewright
