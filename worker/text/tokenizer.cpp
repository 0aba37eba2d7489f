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

// The ids and, if requested, the spans of one text. The spans of a normalised part come from the
// positions of its bytes.
class Tokenizer::Output {
 public:
  // `spans` may be null.
  Output(std::vector<std::int32_t>& ids, std::vector<CharacterSpan>* spans)
      : ids_(ids), spans_(spans) {}

  // Appends an added token that is `text` in the original.
  void add_raw(std::int32_t id, std::string_view text) {
    ids_.push_back(id);
    if (spans_ == nullptr) return;
    const std::uint32_t begin = first_;
    skip(text);
    spans_->push_back({begin, first_});
  }

  // Begins the next part of the original; the calls below take byte offsets in `normalised`.
  void normalise(const Normaliser& normaliser, std::string_view text, std::string& normalised) {
    if (spans_ == nullptr) {
      normaliser.normalise(text, normalised);
    } else {
      normaliser.normalise(text, normalised, positions_);
    }
  }

  // Appends an added token at [begin, end).
  void add(std::int32_t id, std::size_t begin, std::size_t end) {
    ids_.push_back(id);
    if (spans_ != nullptr) add_span(begin, end);
  }

  // Appends the pieces of the word that begins at `begin`.
  void add_word(const WordPiece& word_piece, std::string_view word, std::size_t characters,
                std::size_t begin) {
    if (spans_ == nullptr) {
      word_piece.split(word, characters, ids_);
      return;
    }
    ends_.clear();
    word_piece.split(word, characters, ids_, &ends_);
    std::size_t at = begin;
    for (const std::size_t end : ends_) {
      add_span(at, begin + end);
      at = begin + end;
    }
  }

  // Ends a part: the next one begins after `text`.
  void skip(std::string_view text) {
    if (spans_ == nullptr) return;
    for (const char c : text) first_ += (static_cast<unsigned char>(c) & 0xC0U) != 0x80 ? 1 : 0;
  }

 private:
  void add_span(std::size_t begin, std::size_t end) {
    spans_->push_back({first_ + positions_[begin], first_ + positions_[end - 1] + 1});
  }

  std::vector<std::int32_t>& ids_;
  std::vector<CharacterSpan>* const spans_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::size_t> ends_;
  std::uint32_t first_ = 0;  // code points of the original before the current part
};

// White space separates words and is dropped. Each punctuation character is a word. `text` begins
// at `offset` of the normalised part.
void Tokenizer::tokenize_words(std::string_view text, std::size_t offset, Output& output) const {
  std::size_t begin = 0;
  std::size_t characters = 0;
  std::size_t at = 0;
  const auto end_word = [&] {
    if (characters > 0) {
      output.add_word(word_piece_, text.substr(begin, at - begin), characters, offset + begin);
    }
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
      if (kind == Kind::kPunctuation) {
        output.add_word(word_piece_, text.substr(at, size), 1, offset + at);
      }
    }
    at += size;
  }
  end_word();
}

void Tokenizer::tokenize(std::string_view text, std::vector<std::int32_t>& ids) const {
  Output output(ids, nullptr);
  tokenize(text, output);
}

void Tokenizer::tokenize(std::string_view text, std::vector<std::int32_t>& ids,
                         std::vector<CharacterSpan>& spans) const {
  Output output(ids, &spans);
  tokenize(text, output);
}

void Tokenizer::tokenize(std::string_view text, Output& output) const {
  std::vector<AddedTokens::Part> raw_parts;
  std::vector<AddedTokens::Part> parts;
  std::string normalised;
  raw_tokens_.split(text, raw_parts);
  for (const AddedTokens::Part& raw : raw_parts) {
    if (raw.id) {
      output.add_raw(*raw.id, raw.text);
      continue;
    }
    output.normalise(normaliser_, raw.text, normalised);
    if (normalised_tokens_.empty()) {
      tokenize_words(normalised, 0, output);
    } else {
      normalised_tokens_.split(normalised, parts);
      std::size_t offset = 0;
      for (const AddedTokens::Part& part : parts) {
        if (part.id) {
          output.add(*part.id, offset, offset + part.text.size());
        } else {
          tokenize_words(part.text, offset, output);
        }
        offset += part.text.size();
      }
    }
    output.skip(raw.text);
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
