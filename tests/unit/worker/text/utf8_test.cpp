#include "worker/text/utf8.h"

#include <gtest/gtest.h>

namespace tilewright::text {
namespace {

std::optional<std::size_t> at(std::size_t offset) { return offset; }

TEST(Utf8, DecodesEveryEncodedCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_EQ(find_invalid_utf8(text), std::nullopt) << static_cast<std::uint32_t>(c);
    const Decoded forwards = decode_utf8(text, 0);
    ASSERT_EQ(forwards.code_point, c);
    ASSERT_EQ(forwards.size, text.size());
    const Decoded backwards = decode_utf8_before("é" + text, 2 + text.size());
    ASSERT_EQ(backwards.code_point, c);
    ASSERT_EQ(backwards.size, text.size());
  }
}

TEST(Utf8, FindsTheFirstInvalidByteAfterValidText) {
  const std::string good = "sixteen letters! and then é";
  EXPECT_EQ(find_invalid_utf8(good), std::nullopt);
  EXPECT_EQ(find_invalid_utf8(good + "\xFF"), at(good.size()));
  EXPECT_EQ(find_invalid_utf8(good + "\xFF" + good), at(good.size()));
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

TEST(Utf8, RefusesIllFormedSequences) {
  EXPECT_EQ(find_invalid_utf8("a\x80"), at(1)) << "a continuation byte without a lead byte";
  EXPECT_EQ(find_invalid_utf8("a\xC3"), at(1)) << "an incomplete sequence at the end";
  EXPECT_EQ(find_invalid_utf8("a\xC3("
                              "b"),
            at(1))
      << "a lead byte without a continuation byte";
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), at(0)) << "an overlong slash";
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\xAF"), at(0)) << "an overlong slash of three bytes";
  EXPECT_EQ(find_invalid_utf8("\xF0\x80\x80\xAF"), at(0)) << "an overlong slash of four bytes";
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), at(0)) << "a surrogate";
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), at(0)) << "above U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("\xF8\x88\x80\x80\x80"), at(0)) << "five bytes";
}

TEST(Utf8, DecodesAnIllFormedByteAsOneReplacementCharacter) {
  const std::string text = "\xF0\x9F\x98";  // an emoji without its last byte
  EXPECT_EQ(decode_utf8(text, 0).code_point, 0xFFFDU);
  EXPECT_EQ(decode_utf8(text, 0).size, 1U);
  EXPECT_EQ(decode_utf8_before(text, 3).code_point, 0xFFFDU);
  EXPECT_EQ(decode_utf8_before(text, 3).size, 1U);
}

}  // namespace
}  // namespace tilewright::text
