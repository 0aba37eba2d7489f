// Finds the added tokens of a tokenizer ([CLS], [MASK], ...) in a text, before the text is split
// into words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::text {

// An entry of tokenizer.json's added_tokens.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // its normalised content is matched in normalised text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `tokens` have the same value of `normalized`.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Part {
    std::string_view text;           // of a token with the white space that it includes
    std::optional<std::int32_t> id;  // set for a token
  };

  bool empty() const { return tokens_.empty(); }

  // Replaces `parts` by the parts of `text` from left to right, as views into it that cover it. At
  // each position the longest token matches.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  // The longest token that begins at `at`, or null.
  const AddedToken* token_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;          // in the order of their bytes
  std::array<bool, 256> first_bytes_ = {};  // by byte: a token begins with it
};

}  // namespace tilewright::text
