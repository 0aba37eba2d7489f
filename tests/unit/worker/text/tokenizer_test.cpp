#include "worker/text/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/text/builders.h"

namespace tilewright::text {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Tokenizer, SplitsAtWhiteSpaceAndPunctuation) {
  const Tokenizer tokenizer(tiny_spec());
  EXPECT_EQ(ids_of(tokenizer, " a,b!\tunaffable  "), (Ids{8, 14, 16, 15, 5, 6, 7}));
  EXPECT_EQ(ids_of(tokenizer, ""), Ids{});
  EXPECT_EQ(ids_of(tokenizer, " \n "), Ids{});
}

TEST(Tokenizer, NormalisesTextBeforeItSplitsWords) {
  EXPECT_EQ(ids_of(Tokenizer(tiny_spec()), "CAFÉ a文a"), (Ids{10, 8, 13, 8}));
  TokenizerSpec cased = tiny_spec();
  cased.normaliser.lowercase = false;
  EXPECT_EQ(ids_of(Tokenizer(cased), "Cafe café cafe"), (Ids{12, 11, 10}));
  TokenizerSpec whole = tiny_spec();
  whole.normaliser.handle_chinese_chars = false;
  EXPECT_EQ(ids_of(Tokenizer(whole), "a文a"), (Ids{8, 18, 9}));
}

TEST(Tokenizer, MatchesSpecialTokensExactlyInTheRawText) {
  const Tokenizer tokenizer(tiny_spec());
  EXPECT_EQ(ids_of(tokenizer, "a[MASK]b [SEP]"), (Ids{8, 4, 16, 3}));
  EXPECT_EQ(ids_of(tokenizer, "[mask]"), (Ids{1, 1, 1})) << "[, mask and ] are unknown here";
  EXPECT_EQ(ids_of(tokenizer, "[[PAD]"), (Ids{1, 0}));
}

TEST(Tokenizer, AppliesTheFlagsOfAddedTokens) {
  TokenizerSpec spec = tiny_spec();
  spec.added_tokens.push_back({.id = 30, .content = "aff", .single_word = true});
  spec.added_tokens.push_back({.id = 31, .content = "b", .lstrip = true, .rstrip = true});
  spec.added_tokens.push_back({.id = 32, .content = "bb"});
  spec.added_tokens.push_back({.id = 33, .content = "XÉ", .normalized = true});
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(ids_of(tokenizer, "un aff"), (Ids{5, 30}));
  EXPECT_EQ(ids_of(tokenizer, "unaff"), (Ids{5, 6})) << "single_word does not match inside a word";
  EXPECT_EQ(ids_of(tokenizer, "éaff_"), (Ids{1, 1}));
  EXPECT_EQ(ids_of(tokenizer, "a  b\u3000 a"), (Ids{8, 31, 8}));
  EXPECT_EQ(ids_of(tokenizer, "bbb"), (Ids{32, 31})) << "the longest token matches";
  EXPECT_EQ(ids_of(tokenizer, "axe\u0301a"), (Ids{8, 33, 8})) << "normalised on both sides";
  EXPECT_EQ(tokenizer.vocab_size(), 34);
}

TEST(Tokenizer, EncodesOneTextWithinMaxLength) {
  const Tokenizer tokenizer(tiny_spec());
  const Encoding whole = tokenizer.encode("a b a");
  EXPECT_EQ(whole.ids, (Ids{2, 8, 16, 8, 3}));
  EXPECT_EQ(whole.first_segment, 5U);
  EXPECT_EQ(tokenizer.encode("a b a", 5).ids, whole.ids);
  EXPECT_EQ(tokenizer.encode("a b a", 4).ids, (Ids{2, 8, 16, 3}));
  EXPECT_EQ(tokenizer.encode("a b a", 2).ids, (Ids{2, 3}));
}

TEST(Tokenizer, EncodesPairsWithTypes) {
  const Tokenizer tokenizer(tiny_spec());
  const Encoding pair = tokenizer.encode_pair("a b", "x");
  EXPECT_EQ(pair.ids, (Ids{2, 8, 16, 3, 19, 3}));
  EXPECT_EQ(pair.first_segment, 4U);
  EXPECT_EQ(tokenizer.encode_pair("a a a", "x", 5).ids, (Ids{2, 8, 3, 19, 3}));
  EXPECT_EQ(tokenizer.encode_pair("", "", 3).ids, (Ids{2, 3, 3}));
}

TEST(Tokenizer, TruncatesTheLongerTextFirst) {
  using Kept = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(longest_first(3, 4, 7), (Kept{3, 4}));
  EXPECT_EQ(longest_first(10, 2, 8), (Kept{6, 2}));
  EXPECT_EQ(longest_first(2, 10, 8), (Kept{2, 6}));
  EXPECT_EQ(longest_first(10, 10, 8), (Kept{4, 4}));
  EXPECT_EQ(longest_first(10, 9, 7), (Kept{4, 3})) << "the odd token goes to the longer text";
  EXPECT_EQ(longest_first(9, 10, 7), (Kept{3, 4}));
  EXPECT_EQ(longest_first(9, 9, 7), (Kept{3, 4}))
      << "the odd token goes to the second text if both have the same length";
  EXPECT_EQ(longest_first(9, 9, 0), (Kept{0, 0}));
}

TEST(Tokenizer, ReadsIllFormedTextWithinBounds) {
  const Tokenizer tokenizer(tiny_spec());
  EXPECT_EQ(ids_of(tokenizer, "a \xF0\x9F b \xC3"), (Ids{8, 16}));
}

// Expected spans are those of the tokenizers library, by its rules of alignment.
TEST(TokenSpans, AreTheCodePointsOfTheOriginalText) {
  const auto spans_of = [](const TokenizerSpec& spec, std::string_view text) {
    std::vector<std::int32_t> ids;
    std::vector<CharacterSpan> spans;
    const Tokenizer tokenizer(spec);
    tokenizer.tokenize(text, ids, spans);
    EXPECT_EQ(ids, ids_of(tokenizer, text));
    return spans;
  };
  using Spans = std::vector<CharacterSpan>;
  const TokenizerSpec spec = tiny_spec();
  EXPECT_EQ(spans_of(spec, " unaffable, a"), (Spans{{1, 3}, {3, 6}, {6, 10}, {10, 11}, {12, 13}}));
  EXPECT_EQ(spans_of(spec, "\u200bCafe\u0301 b"), (Spans{{1, 5}, {7, 8}}))
      << "a removed accent at the end is not part of the token";
  EXPECT_EQ(spans_of(spec, "b\u00e1文a"), (Spans{{0, 1}, {1, 2}, {2, 3}, {3, 4}}))
      << "an ideograph is a word";
  EXPECT_EQ(spans_of(spec, "é[MASK] a[SEP]"), (Spans{{0, 1}, {1, 7}, {8, 9}, {9, 14}}));
  TokenizerSpec stripping = tiny_spec();
  stripping.added_tokens[4].lstrip = stripping.added_tokens[4].rstrip = true;
  EXPECT_EQ(spans_of(stripping, "a [MASK] é"), (Spans{{0, 1}, {1, 9}, {9, 10}}))
      << "the token includes the white space that it strips";
  TokenizerSpec normalised = tiny_spec();
  normalised.added_tokens.push_back({.id = 19, .content = "Á!", .normalized = true});
  EXPECT_EQ(spans_of(normalised, "é\u200bá!b"), (Spans{{0, 1}, {2, 4}, {4, 5}}));
}

}  // namespace
}  // namespace tilewright::text
