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
}

TEST(Printable, EscapesBytesThatAreNotValidUtf8) {
  EXPECT_EQ(printable("\xC2"), "\\xc2");
  EXPECT_EQ(printable("a\x80z\xFF"), "a\\x80z\\xff");
  EXPECT_EQ(printable("\xE4\xB8z"), "\\xe4\\xb8z") << "a sequence that ends too early";
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf") << "an overlong form";
}

TEST(Printable, KeepsLineFeedsOfSeveralLines) {
  EXPECT_EQ(printable("one\ntwo\x1b", Lines::kSeveral), "one\ntwo\\x1b");
}

TEST(Excerpt, ShowsTextUpToTheLimitWhole) {
  EXPECT_EQ(excerpt(""), "");
  EXPECT_EQ(excerpt("", 0), "");
  EXPECT_EQ(excerpt("abc", 3), "abc");
  EXPECT_EQ(excerpt("ab\u00e9", 4), "ab\u00e9");
  EXPECT_EQ(excerpt(std::string(kValueExcerpt, 'x')), std::string(kValueExcerpt, 'x'));
}

TEST(Excerpt, MarksTheCut) {
  EXPECT_EQ(excerpt("abcd", 3), "abc...");
  EXPECT_EQ(excerpt("a", 0), "...");
  EXPECT_EQ(excerpt(std::string(kValueExcerpt + 1, 'x')), std::string(kValueExcerpt, 'x') + "...");
}

TEST(Excerpt, SplitsNoCharacter) {
  struct Case {
    const char* text;
    std::size_t length;  // of its second character
  };
  for (const auto& [text, length] :
       {Case{"a\u00e9z", 2}, Case{"a\u4e2dz", 3}, Case{"a\U0001f600z", 4}}) {
    for (std::size_t bytes = 1; bytes <= length; ++bytes) {
      EXPECT_EQ(excerpt(text, bytes), "a...") << length << " " << bytes;
    }
    EXPECT_EQ(excerpt(text, 1 + length), std::string(text, 1 + length) + "...");
    EXPECT_EQ(excerpt(text, 2 + length), text);
  }
}

TEST(Excerpt, EscapesAfterTheCut) {
  EXPECT_EQ(excerpt("\n\x1b\tz", 3), "\\n\\x1b\\t...");
  EXPECT_EQ(excerpt("\xFF\xFE", 2), "\\xff\\xfe");
  EXPECT_EQ(excerpt("a\xFFz", 2), "a\\xff...");
  EXPECT_EQ(excerpt("\x80\x80\x80", 2), "...") << "continuation bytes without a lead byte";
}

TEST(QuotedExcerpt, PutsTheExcerptInQuotes) {
  EXPECT_EQ(quoted_excerpt(""), "\"\"");
  EXPECT_EQ(quoted_excerpt("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(quoted_excerpt("a\u00e9z", 2), "\"a...\"");
}

}  // namespace
}  // namespace tilewright
