#include "worker/text/normaliser.h"

#include <gtest/gtest.h>

namespace tilewright::text {
namespace {

std::string normalised(const std::string& text, const NormaliserOptions& options = {}) {
  std::string out = "left over";
  Normaliser(options).normalise(text, out);
  return out;
}

const NormaliserOptions kNothing{
    .clean_text = false, .handle_chinese_chars = false, .strip_accents = false, .lowercase = false};

TEST(Normaliser, RemovesControlAndReplacementCharacters) {
  using std::string_literals::operator""s;
  EXPECT_EQ(normalised("a\0b\x01"
                       "c\u200bd\ufffde\ufefff\ue000g\x7f"s),
            "abcdefg");
}

TEST(Normaliser, TurnsWhiteSpaceIntoSpacesAndRemovesVerticalTabAndFormFeed) {
  EXPECT_EQ(normalised("a\tb\nc\rd\u00a0e\u3000f\u2028g"), "a b c d e f g");
  EXPECT_EQ(normalised("a\vb\fc"), "abc")
      << "the reference treats vertical tab and form feed as control characters";
}

TEST(Normaliser, PutsSpacesAroundIdeographsButNotAroundKana) {
  EXPECT_EQ(normalised("ab文字x"), "ab 文  字 x");
  EXPECT_EQ(normalised("カナ"), "カナ");
  EXPECT_EQ(normalised("\U0002B820"), "\U0002B820") << "BERT's ranges omit U+2B820 to U+2B91F";
}

TEST(Normaliser, StripsAccentsWithLowerCase) {
  EXPECT_EQ(normalised("CAFÉ Ångström"), "cafe angstrom");
  EXPECT_EQ(normalised("cafe\u0301"), "cafe");
}

TEST(Normaliser, StripAccentsFollowsLowercaseUnlessItIsSet) {
  NormaliserOptions options;
  options.lowercase = false;
  EXPECT_EQ(normalised("CAFÉ", options), "CAFÉ");
  options.strip_accents = true;
  EXPECT_EQ(normalised("CAFÉ", options), "CAFE");
  options.lowercase = true;
  options.strip_accents = false;
  EXPECT_EQ(normalised("CAFÉ", options), "café");
}

TEST(Normaliser, DecomposesHangulWhenItStripsAccents) {
  EXPECT_EQ(normalised("한"), "\u1112\u1161\u11ab");
}

TEST(Normaliser, DottedCapitalIKeepsItsDotIfAccentsAreKept) {
  NormaliserOptions options;
  EXPECT_EQ(normalised("İ", options), "i");
  options.strip_accents = false;
  EXPECT_EQ(normalised("İ", options), "i\u0307");
}

TEST(Normaliser, LowercasesLettersOfLaterUnicodeVersions) {
  EXPECT_EQ(normalised("\u1c89\ua7cb\ua7da\ua7dc"), "\u1c8a\u0264\ua7db\u019b");
  EXPECT_EQ(normalised("\ua7cc\ua7cd\ua7ce"), "\ua7cd\ua7cd\ua7cf");
  EXPECT_EQ(normalised("\U00010D50\U00016EA0"), "\U00010D70\U00016EBB");
}

TEST(Normaliser, WritesSpacingMarksInCanonicalOrder) {
  // U+302E has class 224, U+1BAA class 9; both are spacing marks and are kept.
  EXPECT_EQ(normalised("a\u302e\u1baab"), "a\u1baa\u302eb");
  EXPECT_EQ(normalised("a\u302e\u0301\u1baab"), "a\u1baa\u302eb") << "the accent is removed";
  EXPECT_EQ(normalised("a\u302e\u0901\u1baab"), "a\u302e\u1baab")
      << "a removed mark of class 0 is a boundary for reordering";
  EXPECT_EQ(normalised("a\u302e"), "a\u302e") << "a mark at the end of the text is kept";
}

TEST(Normaliser, KeepsTheTextWithAllOptionsOff) {
  const std::string text = "CAFÉ\t文\u200b";
  EXPECT_EQ(normalised(text, kNothing), text);
}

}  // namespace
}  // namespace tilewright::text
