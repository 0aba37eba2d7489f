// Finds the added tokens of a tokenizer ([CLS], [MASK], ...) in a text before it is split into
// words.
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
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in normalised text, by its normalised content
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Tokens of one kind: all to be found in raw text, or all in normalised text.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Part {
    std::string_view text;           // empty for a token
    std::optional<std::int32_t> id;  // of a token
  };

  bool empty() const { return tokens_.empty(); }

  // Replaces `parts` by the pieces of `text`, left to right, views into it: at each place the
  // longest token wins.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  // The longest token that begins at `at`, or null.
  const AddedToken* token_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;     // longest first
  std::array<bool, 256> begins_ = {};  // by first byte
};

}  // namespace tilewright::text
