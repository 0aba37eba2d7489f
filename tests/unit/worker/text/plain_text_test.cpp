// Compares the direct conversion of ASCII words with the general one, which normalises all text. An
// added token that is matched in normalised text makes a tokenizer use only the general one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/worker/text/builders.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

// Pieces of all lengths around those at which the direct conversion changes its way.
TokenizerSpec make_spec() {
  TokenizerSpec spec = tiny_spec();
  const auto add = [&](const std::string& token) {
    for (const auto& entry : spec.vocabulary) {
      if (entry.first == token) return;
    }
    spec.vocabulary.emplace_back(token, static_cast<std::int32_t>(spec.vocabulary.size()));
  };
  for (const char* word : {"the",
                           "The",
                           "walk",
                           "##ing",
                           "##s",
                           "7",
                           "##7",
                           "i",
                           "##i",
                           "##b",
                           "##x",
                           ".",
                           "'",
                           "##'",
                           "abcdefghijk",
                           "abcdefghijkl",
                           "abcdefghijklm",
                           "abcdefghijklmno",
                           "abcdefghijklmnop",
                           "abcdefghijklmnopq",
                           "##abcdefghijklmnop",
                           "12345678",
                           "123456789012",
                           "1234567890123"}) {
    add(word);
  }
  return spec;
}

TokenizerSpec general(TokenizerSpec spec) {
  spec.added_tokens.push_back({.id = 999, .content = "☃", .normalized = true});
  return spec;
}

struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<CharacterSpan> spans;
  std::vector<std::int32_t> ids_without_spans;
  bool operator==(const Tokens&) const = default;
};

Tokens tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens;
  tokenizer.tokenize(text, tokens.ids, tokens.spans);
  tokenizer.tokenize(text, tokens.ids_without_spans);
  return tokens;
}

std::string printable(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c >= ' ' && c < 0x7F ? std::string(1, c)
                                   : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result;
}

std::vector<TokenizerSpec> all_specs() {
  std::vector<TokenizerSpec> specs;
  for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7}) {
    TokenizerSpec spec = make_spec();
    spec.normaliser.lowercase = (flags & 1) == 0;
    spec.normaliser.clean_text = (flags & 2) == 0;
    spec.normaliser.handle_chinese_chars = (flags & 4) == 0;
    specs.push_back(spec);
  }
  specs.push_back(make_spec());
  specs.back().normaliser.strip_accents = false;
  specs.push_back(make_spec());
  specs.back().max_characters_per_word = 11;
  specs.push_back(make_spec());
  specs.back().max_characters_per_word = 16;
  return specs;
}

void expect_same(const std::vector<std::string>& texts) {
  for (const TokenizerSpec& spec : all_specs()) {
    const Tokenizer direct(spec);
    const Tokenizer reference(general(spec));
    for (const std::string& text : texts) {
      const Tokens found = tokens_of(direct, text);
      const Tokens expected = tokens_of(reference, text);
      ASSERT_EQ(found.ids, expected.ids) << printable(text);
      ASSERT_EQ(found.spans, expected.spans) << printable(text);
      ASSERT_EQ(found.ids_without_spans, expected.ids) << printable(text);
    }
  }
}

TEST(PlainText, AnAddedTokenInNormalisedTextMakesTheReference) {
  EXPECT_EQ(tokens_of(Tokenizer(general(make_spec())), "the☃").ids.back(), 999);
}

TEST(PlainText, WordsOfEveryLengthAreThoseOfTheGeneralConversion) {
  std::vector<std::string> texts;
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  for (std::size_t length = 0; length <= letters.size(); ++length) {
    for (const char* after : {"", " ", ".", "\t", "\xC3\xA9", "\xCC\x81", "\x01", "\x7F", "A"}) {
      for (const char* before : {"", " ", "-", "\xC3\xA9", "the "}) {
        texts.push_back(before + letters.substr(0, length) + after);
        texts.push_back(before + letters.substr(0, length) + after + "walking");
      }
    }
  }
  expect_same(texts);
}

TEST(PlainText, EveryByteAfterAWordIsTreatedAsInTheGeneralConversion) {
  std::vector<std::string> texts;
  for (char32_t c = 0; c < 0x400; ++c) {
    std::string character;
    append_utf8(c, character);
    texts.push_back("walk" + character + "the");
    texts.push_back(character + "the " + character);
    texts.push_back("." + character + " the" + character + character);
  }
  expect_same(texts);
}

TEST(PlainText, RandomTextGivesTheTokensOfTheGeneralConversion) {
  const std::vector<std::string> parts = {"the",
                                          "The",
                                          "WALK",
                                          "walking",
                                          "walks",
                                          "a",
                                          "b",
                                          "un",
                                          "unaffable",
                                          "cafe",
                                          "7",
                                          "77",
                                          "x",
                                          "i",
                                          " ",
                                          "  ",
                                          "\t",
                                          "\r\n",
                                          "\v",
                                          "\f",
                                          ".",
                                          ",",
                                          "!",
                                          "'",
                                          "_",
                                          "-",
                                          "[",
                                          "]",
                                          "[MASK]",
                                          "[SEP",
                                          "é",
                                          "É",
                                          "e\u0301",
                                          "\u0301",
                                          "\u0327",
                                          "\u0345",
                                          "İ",
                                          "文",
                                          "\u3000",
                                          "\u00A0",
                                          "ß",
                                          "\u200B",
                                          "\u2028",
                                          "\uFFFD",
                                          "\x01",
                                          "\x7F",
                                          "😀",
                                          "ﬁ",
                                          "\u1100\u1161",
                                          "abcdefghijkl",
                                          "abcdefghijklmnop",
                                          "123456789012",
                                          "12345678",
                                          std::string(1, '\0'),
                                          std::string(99, 'a'),
                                          std::string(101, 'x')};
  std::mt19937 random(11);
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    const std::size_t count = random() % 12;
    for (std::size_t part = 0; part < count; ++part) text += parts[random() % parts.size()];
    texts.push_back(text);
  }
  expect_same(texts);
}

// Ids are undefined, but reading stays within the text (with AddressSanitizer).
TEST(PlainText, InvalidTextIsReadWithinItsBounds) {
  std::mt19937 random(12);
  const Tokenizer tokenizer(make_spec());
  for (int i = 0; i < 2000; ++i) {
    std::vector<char> bytes(random() % 40);
    for (char& byte : bytes) byte = static_cast<char>(random());
    tokens_of(tokenizer, {bytes.data(), bytes.size()});
  }
}

}  // namespace
}  // namespace tilewright::text
