#include "worker/text/word_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tilewright::text {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool is_short_word(std::string_view word) {
  return !word.empty() && word.size() <= WordTable::kMaxBytes &&
         std::ranges::all_of(word, is_letter_or_digit);
}

}  // namespace

WordTable::WordTable(const std::vector<std::pair<std::string, std::int32_t>>& vocabulary) {
  const auto words = std::ranges::count_if(
      vocabulary, [](const auto& entry) { return is_short_word(entry.first); });
  entries_.resize(std::bit_ceil(std::max<std::size_t>(2 * static_cast<std::size_t>(words), 2)));
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(entries_.size()));
  for (const auto& [word, id] : vocabulary) {
    if (!is_short_word(word)) continue;
    char bytes[kMaxBytes] = {};
    std::ranges::copy(word, bytes);
    Key key;
    std::memcpy(&key.low, bytes, sizeof key.low);
    std::memcpy(&key.high, bytes + sizeof key.low, sizeof key.high);
    entries_[slot(key)] = {key.low, key.high, id};
  }
}

}  // namespace tilewright::text
