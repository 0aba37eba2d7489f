#include "worker/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

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

// What tokenize_plain() does with a byte.
enum class PlainKind : unsigned char { kWord, kSpace, kPunctuation, kOther };

// Control characters, which the normaliser may remove, and parts of other characters are kOther.
constexpr std::array<PlainKind, 256> make_plain_kinds() {
  std::array<PlainKind, 256> kinds = {};
  for (unsigned c = 0; c < kinds.size(); ++c) {
    if (c == '\t' || c == '\n' || c == '\r' || c == ' ') {
      kinds[c] = PlainKind::kSpace;
    } else if (c < ' ' || c >= 0x7F) {
      kinds[c] = PlainKind::kOther;
    } else {
      kinds[c] = kAsciiKinds[c] == Kind::kPunctuation ? PlainKind::kPunctuation : PlainKind::kWord;
    }
  }
  return kinds;
}
constexpr std::array<PlainKind, 256> kPlainKinds = make_plain_kinds();

PlainKind plain_kind(char c) { return kPlainKinds[static_cast<unsigned char>(c)]; }

// 8 bytes in a register; "each" is a value in each of its bytes.
using Bytes = std::uint64_t;
constexpr Bytes kEach = 0x0101010101010101;
constexpr Bytes kHighBits = 0x80 * kEach;

// Sets the high bit of each byte that is at least `least`. All bytes are below 0x80.
constexpr Bytes at_least(Bytes bytes, unsigned char least) {
  return (bytes + (0x80U - least) * kEach) & kHighBits;
}
constexpr Bytes in_range(Bytes bytes, unsigned char first, unsigned char last) {
  return at_least(bytes, first) & ~at_least(bytes, static_cast<unsigned char>(last + 1));
}

// The ASCII letters and digits at the beginning of 8 bytes.
struct PlainBytes {
  Bytes bytes;  // in lower case if requested, then zeros
  std::size_t size;
};

PlainBytes read_plain_bytes(const char* from, bool lowercase) {
  Bytes bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  const Bytes low = bytes & ~kHighBits;
  const Bytes ascii = ~bytes & kHighBits;
  const Bytes letters = in_range(low | 0x20 * kEach, 'a', 'z') & ascii;
  const Bytes others = ~(letters | (in_range(low, '0', '9') & ascii)) & kHighBits;
  if (lowercase) bytes |= letters >> 2;  // 0x20
  if (others == 0) return {bytes, sizeof bytes};
  const auto size = static_cast<std::size_t>(std::countr_zero(others)) / 8;
  return {bytes & ((Bytes{1} << (8 * size)) - 1), size};
}

// The beginning of a word of ASCII letters and digits.
struct PlainWord {
  WordTable::Key key;
  std::size_t size = 0;  // at most kBlock: the first bytes of a longer word
};

constexpr std::size_t kBlock = 2 * sizeof(Bytes);

PlainWord read_plain_word(std::string_view text, std::size_t at, bool lowercase) {
  static_assert(std::endian::native == std::endian::little);
  char tail[kBlock] = {};
  const char* bytes = text.data() + at;
  if (text.size() - at < kBlock) {
    std::memcpy(tail, bytes, text.size() - at);
    bytes = tail;
  }
  const PlainBytes first = read_plain_bytes(bytes, lowercase);
  if (first.size < sizeof(Bytes)) return {{first.bytes, 0}, first.size};
  const PlainBytes second = read_plain_bytes(bytes + sizeof(Bytes), lowercase);
  return {{first.bytes, static_cast<std::uint32_t>(second.bytes)}, first.size + second.size};
}

// The end of the word that begins at `at` and may have characters of other kinds.
std::size_t find_plain_end(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (plain_kind(text[at]) == PlainKind::kWord || plain_kind(text[at]) == PlainKind::kOther)) {
    ++at;
  }
  return at;
}

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
      words_(spec.max_characters_per_word >= WordTable::kMaxBytes ? spec.vocabulary
                                                                  : decltype(spec.vocabulary)()),
      lowercase_(spec.normaliser.lowercase),
      special_(spec.special),
      model_max_length_(spec.model_max_length),
      class_name_(spec.class_name) {
  for (std::size_t c = 0; c < punctuation_ids_.size(); ++c) {
    const char character = static_cast<char>(c);
    if (plain_kind(character) != PlainKind::kPunctuation) continue;
    std::vector<std::int32_t> ids;
    word_piece_.split({&character, 1}, 1, ids);
    punctuation_ids_[c] = ids.front();
  }
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

  // The calls add_plain(), skip() and normalise() take turns with the parts of a text; add_plain()
  // takes byte offsets in the part of ASCII characters after the last skip().
  void add_plain(std::int32_t id, std::size_t begin, std::size_t end) {
    ids_.push_back(id);
    if (spans_ != nullptr) {
      spans_->push_back(
          {first_ + static_cast<std::uint32_t>(begin), first_ + static_cast<std::uint32_t>(end)});
    }
  }

  // Appends the pieces of a word of ASCII characters.
  void add_plain_word(const WordPiece& word_piece, std::string_view word, std::size_t begin) {
    ends_.clear();
    word_piece.split(word, word.size(), ids_, spans_ == nullptr ? nullptr : &ends_);
    std::size_t at = begin;
    for (const std::size_t end : ends_) {
      spans_->push_back({first_ + static_cast<std::uint32_t>(at),
                         first_ + static_cast<std::uint32_t>(begin + end)});
      at = begin + end;
    }
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
    for (const char c : text) first_ += begins_code_point(c) ? 1 : 0;
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
  std::string buffer;
  raw_tokens_.split(text, raw_parts);
  for (const AddedTokens::Part& raw : raw_parts) {
    if (raw.id) {
      output.add_raw(*raw.id, raw.text);
      continue;
    }
    if (normalised_tokens_.empty()) {
      tokenize_plain(raw.text, buffer, output);
    } else {
      tokenize_part(raw.text, buffer, output);
    }
  }
}

// ASCII spaces and punctuation separate words before and after the normalisation, and characters on
// both sides of them do not affect each other. So the text can be cut there.
void Tokenizer::tokenize_plain(std::string_view text, std::string& buffer, Output& output) const {
  std::size_t origin = 0;  // of the offsets for `output`
  for (std::size_t at = 0; at < text.size();) {
    const PlainKind kind = plain_kind(text[at]);
    if (kind == PlainKind::kSpace) {
      ++at;
      continue;
    }
    if (kind == PlainKind::kPunctuation) {
      output.add_plain(punctuation_ids_[static_cast<unsigned char>(text[at])], at - origin,
                       at + 1 - origin);
      ++at;
      continue;
    }
    if (kind == PlainKind::kWord) {
      const PlainWord word = read_plain_word(text, at, lowercase_);
      std::size_t end = at + word.size;
      if (word.size == kBlock) {
        while (end < text.size() && plain_kind(text[end]) == PlainKind::kWord) ++end;
      }
      if (end == text.size() || plain_kind(text[end]) != PlainKind::kOther) {
        const std::int32_t id = end - at <= WordTable::kMaxBytes ? words_.find(word.key) : -1;
        if (id >= 0) {
          output.add_plain(id, at - origin, end - origin);
        } else {
          buffer.assign(text, at, end - at);
          if (lowercase_) {
            for (char& c : buffer) c = static_cast<char>(c | (c >= 'A' && c <= 'Z' ? 0x20 : 0));
          }
          output.add_plain_word(word_piece_, buffer, at - origin);
        }
        at = end;
        continue;
      }
    }
    const std::size_t end = find_plain_end(text, at);
    output.skip(text.substr(origin, at - origin));
    tokenize_part(text.substr(at, end - at), buffer, output);
    origin = at = end;
  }
  output.skip(text.substr(origin));
}

void Tokenizer::tokenize_part(std::string_view text, std::string& buffer, Output& output) const {
  output.normalise(normaliser_, text, buffer);
  if (normalised_tokens_.empty()) {
    tokenize_words(buffer, 0, output);
  } else {
    std::vector<AddedTokens::Part> parts;
    normalised_tokens_.split(buffer, parts);
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
  output.skip(text);
}

Encoding Tokenizer::encode(std::string_view text, std::size_t max_length) const {
  TW_CHECK(max_length >= 2, "found max_length {}, expected at least 2 for [CLS] and [SEP]",
           max_length);
  Encoding encoding;
  encoding.ids.push_back(special_.cls);
  tokenize(text, encoding.ids);
  encoding.ids.resize(std::min(encoding.ids.size(), max_length - 1));
  encoding.ids.push_back(special_.sep);
  encoding.first_segment = encoding.ids.size();
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
  encoding.first_segment = encoding.ids.size();
  encoding.ids.insert(encoding.ids.end(), second.begin(),
                      second.begin() + static_cast<std::ptrdiff_t>(keep_b));
  encoding.ids.push_back(special_.sep);
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
