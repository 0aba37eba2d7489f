// The ids of short whole words of letters and digits, for the words that are entries of the
// vocabulary: most words of English text. A lookup reads one entry of 16 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::text {

class WordTable {
 public:
  static constexpr std::size_t kMaxBytes = 12;

  // The bytes of a word in memory order, then zeros.
  struct Key {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    bool operator==(const Key&) const = default;
  };

  // Ignores longer entries and entries with other characters than ASCII letters and digits.
  explicit WordTable(const std::vector<std::pair<std::string, std::int32_t>>& vocabulary);

  // The id of the entry, or -1.
  std::int32_t find(Key key) const { return entries_[slot(key)].id; }

 private:
  struct Entry {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::int32_t id = -1;  // -1: free
  };

  // Returns the index of the entry with this key, or of the free entry where it belongs.
  std::size_t slot(Key key) const {
    std::size_t at = ((key.low ^ (key.high * 0xD6E8FEB86659FD93U)) * 0x9E3779B97F4A7C15U) >> shift_;
    while (entries_[at].id >= 0 && (entries_[at].low != key.low || entries_[at].high != key.high)) {
      at = (at + 1) & (entries_.size() - 1);
    }
    return at;
  }

  std::vector<Entry> entries_;  // size is a power of two; at most half of the entries are used
  unsigned shift_ = 0;
};

}  // namespace tilewright::text
