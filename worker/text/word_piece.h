// Splits words into the longest pieces the vocabulary knows, from the left (WordPiece).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::text {

// Bounds of a vocabulary: far above any published one, and small enough for 24-bit node numbers.
constexpr std::size_t kMaxVocabularyEntries = std::size_t{1} << 21;
constexpr std::size_t kMaxVocabularyBytes = (std::size_t{1} << 24) - 1;

class WordPiece {
 public:
  struct Options {
    std::int32_t unknown_id = 0;
    std::string continuation = "##";   // stands before pieces that do not begin a word
    std::size_t max_characters = 100;  // longer words are unknown
  };

  // Entries are distinct, within the bounds above and in any order.
  WordPiece(const std::vector<std::pair<std::string, std::int32_t>>& entries,
            const Options& options);

  // Appends the ids of one word of `characters` code points; one unknown_id when no split covers
  // it.
  void split(std::string_view word, std::size_t characters, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint32_t kNone = 0;  // the root, and so nobody's child

  // A trie over bytes whose edges stand in one open-addressed table: key = node << 8 | byte.
  struct Edge {
    std::uint32_t key = 0;
    std::uint32_t child = kNone;
  };

  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  std::uint32_t add_child(std::uint32_t node, unsigned char byte);
  std::size_t slot(std::uint32_t key) const;

  Options options_;
  std::vector<Edge> edges_;  // a power of two, at most half full
  unsigned shift_ = 0;
  std::vector<std::int32_t> ids_;  // of the entry that ends at each node, or -1
  std::uint32_t inside_ = kNone;   // the node of the continuation prefix; kNone: no such entries
};

}  // namespace tilewright::text
