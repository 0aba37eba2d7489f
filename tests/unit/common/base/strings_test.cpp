#include "common/base/strings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>

#include "common/base/printable.h"

namespace tilewright {
namespace {

TEST(ToHex, WritesTwoDigitsPerByte) {
  constexpr std::array<unsigned char, 4> kBytes{0x00, 0x0a, 0x7f, 0xff};
  EXPECT_EQ(to_hex(kBytes), "000a7fff");
  EXPECT_EQ(to_hex({}), "");
}

TEST(Utf8PrefixLength, NeverSplitsACharacter) {
  const std::string text = "a\u00e4\u20acz";  // 1, 2, 3 and 1 bytes
  const std::size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 7, 7};
  for (std::size_t most = 0; most < std::size(expected); ++most) {
    EXPECT_EQ(utf8_prefix_length(text, most), expected[most]) << most;
  }
  EXPECT_EQ(utf8_prefix_length("\x80\x80\x80", 2), 0U) << "continuation bytes without a lead byte";
}

TEST(Utf8SequenceLength, CountsTheBytesOfAValidSequence) {
  EXPECT_EQ(utf8_sequence_length("az"), 1U);
  EXPECT_EQ(utf8_sequence_length("\u00e4z"), 2U);
  EXPECT_EQ(utf8_sequence_length("\u20acz"), 3U);
  EXPECT_EQ(utf8_sequence_length("\U0001f600z"), 4U);
  for (const char* invalid : {"\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE2\x82", "\xE2\x82z",
                              "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_EQ(utf8_sequence_length(invalid), 0U) << printable(invalid);
  }
}

TEST(IsUtf8, LooksAtTheWholeText) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\u00e4\u20ac\U0001f600"));
  EXPECT_FALSE(is_utf8("caf\xE9"));
  EXPECT_FALSE(is_utf8("\xE9\x63"));
}

TEST(SubstringBetween, UsesTheFirstStartAndTheNextEnd) {
  EXPECT_EQ(substring_between("volume \"a\" and \"b\"", "\"", "\""), "a");
  EXPECT_EQ(substring_between("x: claim \"data\" not found", "claim \"", "\" not found"), "data");
  EXPECT_EQ(substring_between("\"\"", "\"", "\""), "");
  EXPECT_EQ(substring_between("one \" alone", "\"", "\""), std::nullopt);
  EXPECT_EQ(substring_between("end before begin", "begin", "end"), std::nullopt);
  EXPECT_EQ(substring_between("", "a", "b"), std::nullopt);
}

TEST(EqualIgnoringCase, ComparesAsciiLetters) {
  EXPECT_TRUE(equal_ignoring_case("Gbit", "gBIT"));
  EXPECT_TRUE(equal_ignoring_case("", ""));
  EXPECT_FALSE(equal_ignoring_case("Gbit", "Gbits"));
  EXPECT_FALSE(equal_ignoring_case("@", "`")) << "32 apart, no letters";
}

TEST(Counted, HasTheFormOfTheNoun) {
  EXPECT_EQ(counted(1, "core"), "1 core");
  EXPECT_EQ(counted(0, "core"), "0 cores");
  EXPECT_EQ(counted(2, "allowed CPU"), "2 allowed CPUs");
  EXPECT_EQ(counted(1, "process"), "1 process");
  EXPECT_EQ(counted(3, "process"), "3 processes");
}

TEST(EnvironmentVariable, IsEmptyWhenUnset) {
  setenv("TILEWRIGHT_TEXT_TEST", "x", 1);
  EXPECT_EQ(environment_variable("TILEWRIGHT_TEXT_TEST"), "x");
  unsetenv("TILEWRIGHT_TEXT_TEST");
  EXPECT_EQ(environment_variable("TILEWRIGHT_TEXT_TEST"), "");
}

TEST(ParseNumber, TakesOnlyAWholeNumberWithinTheBounds) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<std::uint16_t>("65535"), 65535);
  EXPECT_EQ(parse_number<double>("2.5e1"), 25.0);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1x", "0x1", "1.0", "2147483648"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  for (const char* text : {"65536", "-1"})
    EXPECT_EQ(parse_number<std::uint16_t>(text), std::nullopt) << text;
  for (const char* text : {"nan", "inf", "-inf", "1e999"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<int>("3", 3, 4), 3);
  EXPECT_EQ(parse_number<int>("4", 3, 4), 4);
  for (const char* text : {"2", "5"})
    EXPECT_EQ(parse_number<int>(text, 3, 4), std::nullopt) << text;
}

}  // namespace
}  // namespace tilewright
