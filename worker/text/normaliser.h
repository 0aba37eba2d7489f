// BERT's text normalisation: removes control characters, turns white space into spaces, puts spaces
// around ideographs, strips accents, converts to lower case.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::text {

// The fields of tokenizer.json's BertNormalizer.
struct NormaliserOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  // default: the value of `lowercase`
  bool lowercase = true;
};

class Normaliser {
 public:
  explicit Normaliser(const NormaliserOptions& options);

  // Sets `out` to the normalised `text`. Equal to BertNormalizer for every valid UTF-8 text.
  void normalise(std::string_view text, std::string& out) const;

  // Also sets `positions` to the alignment of BertNormalizer: for each byte of `out` the index of
  // the code point of `text` that it comes from. They never decrease.
  void normalise(std::string_view text, std::string& out,
                 std::vector<std::uint32_t>& positions) const;

 private:
  class Writer;

  void normalise(std::string_view text, Writer& writer) const;

  bool clean_text_;
  bool handle_chinese_chars_;
  bool strip_accents_;
  bool lowercase_;
  // The result for each ASCII character; kDropped removes it.
  std::array<unsigned char, 128> ascii_;
};

}  // namespace tilewright::text
