#include "worker/tasks/squad/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "worker/text/characters.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The property Case_Ignorable: marks, modifiers, format characters and the punctuation that occurs
// inside words.
bool is_case_ignorable(char32_t c) {
  constexpr std::array<char32_t, 17> kInsideWords = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::binary_search(kInsideWords.begin(), kInsideWords.end(), c);
  }
}

// The property Cased: letters with a case, ordinals, Roman numerals, circled and squared letters.
bool is_cased(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return c == 0xAA || c == 0xBA || (c >= 0x2160 && c <= 0x217F) ||
             (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

// Whether a word ends with the sigma at [begin, end): Unicode standard, table 3-17, Final_Sigma.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    const text::Decoded last = text::decode_utf8_before(text, begin);
    begin -= last.size;
    if (is_case_ignorable(last.code_point)) continue;
    cased_before = is_cased(last.code_point);
    break;
  }
  while (cased_before && end < text.size()) {
    const text::Decoded next = text::decode_utf8(text, end);
    end += next.size;
    if (is_case_ignorable(next.code_point)) continue;
    return !is_cased(next.code_point);
  }
  return cased_before;
}

}  // namespace

bool is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || text::is_whitespace(c); }

bool is_python_word(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return c == '_';
  }
}

std::string python_lower(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const text::Decoded next = text::decode_utf8(text, at);
    const char32_t c = next.code_point;
    if (c < 0x80) {
      lower.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c));
    } else if (c == 0x130) {  // capital I with dot above: the only lower case of two code points
      text::append_utf8(U'i', lower);
      text::append_utf8(0x307, lower);
    } else if (c == kCapitalSigma && is_final_sigma(text, at, at + next.size)) {
      text::append_utf8(kFinalSigma, lower);
    } else {
      text::append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))),
                        lower);
    }
    at += next.size;
  }
  return lower;
}

std::string_view python_lstrip(std::string_view text) {
  while (!text.empty()) {
    const text::Decoded next = text::decode_utf8(text, 0);
    if (!is_python_space(next.code_point)) break;
    text.remove_prefix(next.size);
  }
  return text;
}

std::vector<std::string_view> python_split(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const text::Decoded next = text::decode_utf8(text, at);
    if (is_python_space(next.code_point)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + next.size;
    }
    at += next.size;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
  return words;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), text::begins_code_point));
}

CodePoints::CodePoints(std::string_view text) : text_(text), size_(text.size()) {
  if (is_ascii(text)) return;
  bytes_.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); at += text::decode_utf8(text, at).size) {
    bytes_.push_back(static_cast<std::uint32_t>(at));
  }
  size_ = bytes_.size();
  bytes_.push_back(static_cast<std::uint32_t>(text.size()));
}

std::size_t CodePoints::byte_of(std::size_t index) const {
  TW_CHECK(index <= size_, "code point {} of {}", index, size_);
  return bytes_.empty() ? index : bytes_[index];
}

std::string_view CodePoints::slice(std::size_t begin, std::size_t end) const {
  const std::size_t from = byte_of(begin);
  return text_.substr(from, byte_of(end) - from);
}

}  // namespace tilewright::tasks::squad
