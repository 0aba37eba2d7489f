// Converts text to token ids like Hugging Face's BertTokenizerFast: normalises, splits into words
// and word pieces, adds [CLS] and [SEP].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/text/added_tokens.h"
#include "worker/text/normaliser.h"
#include "worker/text/word_piece.h"
#include "worker/text/word_table.h"

namespace tilewright::text {

// Ids of the special tokens. Only `mask` may be missing (-1).
struct SpecialTokens {
  std::int32_t cls = -1;
  std::int32_t sep = -1;
  std::int32_t pad = -1;
  std::int32_t unk = -1;
  std::int32_t mask = -1;
};

// The complete definition of a tokenizer; read_tokenizer_files() reads it from a model directory.
struct TokenizerSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::vector<AddedToken> added_tokens;
  NormaliserOptions normaliser;
  SpecialTokens special;
  std::string continuation = "##";
  std::size_t max_characters_per_word = 100;
  // Tokens of an input with [CLS] and [SEP] at most.
  std::int64_t model_max_length = std::numeric_limits<std::int64_t>::max();
  // The class of transformers that the files name; empty: none.
  std::string class_name;
};

// The code points [begin, end) of a text that a token covers: an entry of offset_mapping.
struct CharacterSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const CharacterSpan&) const = default;
};

// One input sequence of the model: [CLS] a [SEP], of type 0, and b [SEP], of type 1.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::size_t first_segment = 0;  // tokens of type 0
};

// Immutable after construction, so threads can share one.
class Tokenizer {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  explicit Tokenizer(const TokenizerSpec& spec);

  // Loads the tokenizer of a Hugging Face model directory. Throws Failure with
  // ExitCode::kModel.
  static Tokenizer load(const std::filesystem::path& model_dir);

  // Appends the ids of the text without [CLS] and [SEP]. The text should be valid UTF-8
  // (find_invalid_utf8). For other text the ids are undefined, but memory access is still safe.
  void tokenize(std::string_view text, std::vector<std::int32_t>& ids) const;

  // Also appends the span of each token in the text, which has fewer than 2^32 code points.
  void tokenize(std::string_view text, std::vector<std::int32_t>& ids,
                std::vector<CharacterSpan>& spans) const;

  // [CLS] a [SEP], truncated at the end of a to max_length tokens in total (at least 2).
  Encoding encode(std::string_view text, std::size_t max_length = kNoLimit) const;

  // [CLS] a [SEP] b [SEP] with at most max_length tokens (at least 3). Truncation "longest_first":
  // removes tokens from the end of the longer text until both have the same length, then from both
  // in turn.
  Encoding encode_pair(std::string_view a, std::string_view b,
                       std::size_t max_length = kNoLimit) const;

  const SpecialTokens& special() const { return special_; }
  // See TokenizerSpec.
  std::int64_t model_max_length() const { return model_max_length_; }
  const std::string& class_name() const { return class_name_; }
  // The largest id plus one: the minimum of the model's vocab_size.
  std::int32_t vocab_size() const { return vocab_size_; }

 private:
  class Output;

  void tokenize(std::string_view text, Output& output) const;
  // A text without added tokens. Words of ASCII letters and digits and ASCII punctuation are
  // converted directly, other words by tokenize_part().
  void tokenize_plain(std::string_view text, std::string& buffer, Output& output) const;
  // Any text: normalises it to `buffer` and finds normalised added tokens and words there.
  void tokenize_part(std::string_view text, std::string& buffer, Output& output) const;
  void tokenize_words(std::string_view normalised, std::size_t offset, Output& output) const;

  Normaliser normaliser_;
  AddedTokens raw_tokens_;
  AddedTokens normalised_tokens_;
  WordPiece word_piece_;
  WordTable words_;
  std::array<std::int32_t, 128> punctuation_ids_ = {};  // by ASCII punctuation character
  bool lowercase_;
  SpecialTokens special_;
  std::int64_t model_max_length_;
  std::string class_name_;
  std::int32_t vocab_size_ = 0;
};

// The number of tokens of each text that remain if both together may have at most `limit`.
std::pair<std::size_t, std::size_t> longest_first(std::size_t a, std::size_t b, std::size_t limit);

}  // namespace tilewright::text
