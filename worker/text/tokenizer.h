// Text to token ids, equal to Hugging Face's BertTokenizerFast: normalise, cut into words, split
// into pieces, wrap in [CLS] and [SEP].
#pragma once

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

namespace tilewright::text {

// Ids of the tokens with a part of their own; -1 where the vocabulary has none ([MASK] only).
struct SpecialTokens {
  std::int32_t cls = -1;
  std::int32_t sep = -1;
  std::int32_t pad = -1;
  std::int32_t unk = -1;
  std::int32_t mask = -1;
};

// All that tells one tokenizer from another; read_tokenizer_files makes it from a model folder.
struct TokenizerSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::vector<AddedToken> added_tokens;
  NormaliserOptions normaliser;
  SpecialTokens special;
  std::string continuation = "##";
  std::size_t max_characters_per_word = 100;
};

// One sequence as the model takes it: type 0 for [CLS] a [SEP], type 1 for b [SEP].
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;
};

// Immutable after construction; any number of threads may use one.
class Tokenizer {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  explicit Tokenizer(const TokenizerSpec& spec);

  // From a Hugging Face model folder; Failure with kModel when that cannot be done.
  static Tokenizer load(const std::filesystem::path& model_dir);

  // Appends the ids of the text alone, without [CLS] and [SEP]. The text must be valid UTF-8
  // (find_invalid_utf8); elsewhere the ids mean nothing, but no bound is overstepped.
  void tokenize(std::string_view text, std::vector<std::int32_t>& ids) const;

  // [CLS] a [SEP], cut at the end to max_length (at least 2) tokens in all.
  Encoding encode(std::string_view text, std::size_t max_length = kNoLimit) const;

  // [CLS] a [SEP] b [SEP] of at most max_length (at least 3) tokens, "longest_first": the longer of
  // the two loses tokens from its end until both are as long as each other, then both in turn.
  Encoding encode_pair(std::string_view a, std::string_view b,
                       std::size_t max_length = kNoLimit) const;

  const SpecialTokens& special() const { return special_; }
  // One more than the largest id: what the model's vocab_size must at least be.
  std::int32_t vocab_size() const { return vocab_size_; }

 private:
  void tokenize_words(std::string_view normalised, std::vector<std::int32_t>& ids) const;

  Normaliser normaliser_;
  AddedTokens raw_tokens_;
  AddedTokens normalised_tokens_;
  WordPiece word_piece_;
  SpecialTokens special_;
  std::int32_t vocab_size_ = 0;
};

// How many tokens of a pair's two parts remain when together they may have at most `room`.
std::pair<std::size_t, std::size_t> longest_first(std::size_t a, std::size_t b, std::size_t room);

}  // namespace tilewright::text
