// Compares the normaliser and the word splitter for every Unicode code point, and every small
// truncation, with the reference's hashes. Needs neither model nor data.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/golden/text/golden.h"
#include "worker/text/tokenizer.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

using testing::SequenceHash;

template <typename Visit>
void for_each_code_point(std::string_view before, std::string_view after, const Visit& visit) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    text.clear();
    text += before;
    append_utf8(c, text);
    text += after;
    visit(text);
  }
}

TEST(EveryCodePoint, IsNormalisedLikeTheReference) {
  const NormaliserOptions off{.clean_text = false,
                              .handle_chinese_chars = false,
                              .strip_accents = false,
                              .lowercase = false};
  NormaliserOptions clean = off, chinese = off, strip = off, lower = off, all;
  clean.clean_text = true;
  chinese.handle_chinese_chars = true;
  strip.strip_accents = true;
  lower.lowercase = true;
  struct Case {
    const char* name;
    NormaliserOptions options;
    const char* before;
    const char* after;
  };
  const auto golden = testing::golden_hashes().at("code_points");
  for (const Case& test : std::vector<Case>{{"clean_text", clean, "a", "b"},
                                            {"handle_chinese_chars", chinese, "a", "b"},
                                            {"strip_accents", strip, "a\u302e", "\u1baab"},
                                            {"lowercase", lower, "a", "b"},
                                            {"all", all, "a\u302e", "\u1baab"}}) {
    const Normaliser normaliser(test.options);
    SequenceHash hash;
    std::string out;
    for_each_code_point(test.before, test.after, [&](const std::string& text) {
      normaliser.normalise(text, out);
      hash.text(out);
    });
    EXPECT_EQ(hash.hex(), golden.at(test.name).get<std::string>()) << test.name;
  }
}

TEST(EveryCodePoint, SeparatesWordsLikeTheReference) {
  TokenizerSpec spec;
  spec.vocabulary = {{"[UNK]", 0}, {"a", 1}, {"b", 2}};
  spec.normaliser = {.clean_text = false,
                     .handle_chinese_chars = false,
                     .strip_accents = false,
                     .lowercase = false};
  spec.special.unk = 0;
  const Tokenizer tokenizer(spec);
  SequenceHash hash;
  std::vector<std::int32_t> ids;
  for_each_code_point("a", "b", [&](const std::string& text) {
    ids.clear();
    tokenizer.tokenize(text, ids);
    hash.sequence(ids);
  });
  EXPECT_EQ(hash.hex(), testing::golden_hashes().at("code_points").at("words").get<std::string>());
}

TEST(Truncation, KeepsTheReferencesNumberOfTokensOfEachText) {
  SequenceHash hash;
  for (std::size_t max_length = 3; max_length < 65; ++max_length) {
    for (std::size_t a = 0; a <= 40; ++a) {
      for (std::size_t b = 0; b <= 40; ++b) {
        const auto [keep_a, keep_b] = longest_first(a, b, max_length - 3);
        const std::int32_t kept[] = {static_cast<std::int32_t>(keep_a),
                                     static_cast<std::int32_t>(keep_b)};
        hash.sequence(kept);
      }
    }
  }
  EXPECT_EQ(hash.hex(), testing::golden_hashes().at("truncation").get<std::string>());
}

}  // namespace
}  // namespace tilewright::text
