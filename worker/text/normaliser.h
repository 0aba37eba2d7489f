// BERT's text normalisation: control characters removed, white space made blanks, ideographs set
// apart, accents stripped, lower case.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::text {

// The fields of tokenizer.json's BertNormalizer.
struct NormaliserOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  // not set: follows `lowercase`
  bool lowercase = true;
};

class Normaliser {
 public:
  explicit Normaliser(const NormaliserOptions& options);

  // Replaces `out` by the normalised `text`. Equal to BertNormalizer on every valid UTF-8 text.
  void normalise(std::string_view text, std::string& out) const;

 private:
  class Writer;

  bool clean_text_;
  bool handle_chinese_chars_;
  bool strip_accents_;
  bool lowercase_;
  // What each ASCII character becomes; kDropped: nothing.
  std::array<unsigned char, 128> ascii_;
};

}  // namespace tilewright::text
