#include "worker/text/tokenizer.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "worker/text/characters.h"
#include "worker/text/tokenizer_files.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

enum class Kind : unsigned char { kWord, kSpace, kPunctuation };

Kind kind_of(char32_t c) {
  if (is_whitespace(c)) return Kind::kSpace;
  return is_punctuation(c) ? Kind::kPunctuation : Kind::kWord;
}

constexpr std::array<Kind, 128> make_ascii_kinds() {
  std::array<Kind, 128> kinds = {};
  for (unsigned c = 0; c < kinds.size(); ++c) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      kinds[c] = Kind::kSpace;
    } else if (c > ' ' && c < 0x7F && !letter) {
      kinds[c] = Kind::kPunctuation;
    }
  }
  return kinds;
}
constexpr std::array<Kind, 128> kAsciiKinds = make_ascii_kinds();

std::vector<AddedToken> tokens_to_find(const TokenizerSpec& spec, bool normalised) {
  std::vector<AddedToken> found;
  const Normaliser normaliser(spec.normaliser);
  for (AddedToken token : spec.added_tokens) {
    if (token.normalized != normalised) continue;
    if (normalised) {
      const std::string raw = token.content;
      normaliser.normalise(raw, token.content);
    }
    found.push_back(std::move(token));
  }
  return found;
}

}  // namespace

Tokenizer::Tokenizer(const TokenizerSpec& spec)
    : normaliser_(spec.normaliser),
      raw_tokens_(tokens_to_find(spec, false)),
      normalised_tokens_(tokens_to_find(spec, true)),
      word_piece_(spec.vocabulary, {.unknown_id = spec.special.unk,
                                    .continuation = spec.continuation,
                                    .max_characters = spec.max_characters_per_word}),
      special_(spec.special) {
  for (const auto& entry : spec.vocabulary) vocab_size_ = std::max(vocab_size_, entry.second + 1);
  for (const AddedToken& token : spec.added_tokens) {
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  return Tokenizer(read_tokenizer_files(model_dir));
}

// White space separates words and is dropped. Each punctuation character is a word.
void Tokenizer::tokenize_words(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::size_t begin = 0;
  std::size_t characters = 0;
  std::size_t at = 0;
  const auto end_word = [&] {
    if (characters > 0) word_piece_.split(text.substr(begin, at - begin), characters, ids);
    characters = 0;
  };
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    std::size_t size = 1;
    Kind kind = Kind::kWord;
    if (byte < 0x80) {
      kind = kAsciiKinds[byte];
    } else {
      const Decoded next = decode_utf8(text, at);
      size = next.size;
      kind = kind_of(next.code_point);
    }
    if (kind == Kind::kWord) {
      if (characters++ == 0) begin = at;
    } else {
      end_word();
      if (kind == Kind::kPunctuation) word_piece_.split(text.substr(at, size), 1, ids);
    }
    at += size;
  }
  end_word();
}

void Tokenizer::tokenize(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::vector<AddedTokens::Part> raw_parts;
  std::vector<AddedTokens::Part> parts;
  std::string normalised;
  raw_tokens_.split(text, raw_parts);
  for (const AddedTokens::Part& raw : raw_parts) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    normaliser_.normalise(raw.text, normalised);
    if (normalised_tokens_.empty()) {
      tokenize_words(normalised, ids);
      continue;
    }
    normalised_tokens_.split(normalised, parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.id) {
        ids.push_back(*part.id);
      } else {
        tokenize_words(part.text, ids);
      }
    }
  }
}

Encoding Tokenizer::encode(std::string_view text, std::size_t max_length) const {
  TW_CHECK(max_length >= 2, "found max_length {}, expected at least 2 for [CLS] and [SEP]",
           max_length);
  Encoding encoding;
  encoding.ids.push_back(special_.cls);
  tokenize(text, encoding.ids);
  encoding.ids.resize(std::min(encoding.ids.size(), max_length - 1));
  encoding.ids.push_back(special_.sep);
  encoding.types.assign(encoding.ids.size(), 0);
  return encoding;
}

Encoding Tokenizer::encode_pair(std::string_view a, std::string_view b,
                                std::size_t max_length) const {
  TW_CHECK(max_length >= 3, "found max_length {}, expected at least 3 for [CLS] and two [SEP]",
           max_length);
  Encoding encoding;
  encoding.ids.push_back(special_.cls);
  tokenize(a, encoding.ids);
  std::vector<std::int32_t> second;
  tokenize(b, second);
  const auto [keep_a, keep_b] =
      longest_first(encoding.ids.size() - 1, second.size(), max_length - 3);
  encoding.ids.resize(1 + keep_a);
  encoding.ids.push_back(special_.sep);
  encoding.types.assign(encoding.ids.size(), 0);
  encoding.ids.insert(encoding.ids.end(), second.begin(),
                      second.begin() + static_cast<std::ptrdiff_t>(keep_b));
  encoding.ids.push_back(special_.sep);
  encoding.types.resize(encoding.ids.size(), 1);
  return encoding;
}

std::pair<std::size_t, std::size_t> longest_first(std::size_t a, std::size_t b, std::size_t limit) {
  if (a + b <= limit) return {a, b};
  // If the shorter text fits into half of the limit, only the longer is truncated. Otherwise both
  // get half, and an odd token goes to the longer text (to b if they have the same length).
  const std::size_t half = limit / 2;
  const std::size_t shorter = std::min(a, b);
  const std::size_t keep_shorter = std::min(shorter, half);
  const std::size_t keep_longer = limit - keep_shorter;
  return a > b ? std::pair{keep_longer, keep_shorter} : std::pair{keep_shorter, keep_longer};
}

}  // namespace tilewright::text
