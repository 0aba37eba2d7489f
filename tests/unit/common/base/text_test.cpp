#include "common/base/text.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>

namespace tilewright {
namespace {

TEST(ToHex, WritesTwoDigitsAByte) {
  constexpr std::array<unsigned char, 4> kBytes{0x00, 0x0a, 0x7f, 0xff};
  EXPECT_EQ(to_hex(kBytes), "000a7fff");
  EXPECT_EQ(to_hex({}), "");
}

TEST(WholeCharacters, CutsBetweenCharactersOnly) {
  const std::string text = "a\u00e4\u20acz";  // of 1, 2, 3 and 1 bytes
  const std::size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 7, 7};
  for (std::size_t most = 0; most < std::size(expected); ++most) {
    EXPECT_EQ(whole_characters(text, most), expected[most]) << most;
  }
  EXPECT_EQ(whole_characters("\x80\x80\x80", 2), 0U) << "the rest of a character has no beginning";
}

TEST(TextBetween, TakesTheFirstBeginningAndTheNextEnd) {
  EXPECT_EQ(text_between("volume \"a\" and \"b\"", "\"", "\""), "a");
  EXPECT_EQ(text_between("x: claim \"data\" not found", "claim \"", "\" not found"), "data");
  EXPECT_EQ(text_between("\"\"", "\"", "\""), "");
  EXPECT_EQ(text_between("one \" alone", "\"", "\""), std::nullopt);
  EXPECT_EQ(text_between("end before begin", "begin", "end"), std::nullopt);
  EXPECT_EQ(text_between("", "a", "b"), std::nullopt);
}

TEST(EnvironmentVariable, IsEmptyWhereItIsNotSet) {
  setenv("TILEWRIGHT_TEXT_TEST", "x", 1);
  EXPECT_EQ(environment_variable("TILEWRIGHT_TEXT_TEST"), "x");
  unsetenv("TILEWRIGHT_TEXT_TEST");
  EXPECT_EQ(environment_variable("TILEWRIGHT_TEXT_TEST"), "");
}

}  // namespace
}  // namespace tilewright
