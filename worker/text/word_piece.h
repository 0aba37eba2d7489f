// WordPiece: splits a word from left to right into the longest pieces of the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::text {

// Bounds of a vocabulary: larger than any published one, and small enough for 24-bit node numbers.
constexpr std::size_t kMaxVocabularyEntries = std::size_t{1} << 21;
constexpr std::size_t kMaxVocabularyBytes = (std::size_t{1} << 24) - 1;

class WordPiece {
 public:
  struct Options {
    std::int32_t unknown_id = 0;
    std::string continuation = "##";   // prefix of pieces inside a word
    std::size_t max_characters = 100;  // longer words become unknown_id
  };

  // Entries are distinct and within the bounds above, in any order.
  WordPiece(const std::vector<std::pair<std::string, std::int32_t>>& entries,
            const Options& options);

  // Appends the ids of one word of `characters` code points, or one unknown_id if it cannot be
  // split. `ends`, if not null, gets the offset in `word` at which the piece of each id ends.
  void split(std::string_view word, std::size_t characters, std::vector<std::int32_t>& ids,
             std::vector<std::size_t>* ends = nullptr) const;

 private:
  static constexpr std::uint32_t kNone = 0;  // no child: the root is not the child of any node

  // A trie over bytes. Its edges are in one open-addressing hash table; key = node << 8 | byte.
  struct Edge {
    std::uint32_t key = 0;
    std::uint32_t child = kNone;
  };

  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  std::uint32_t add_child(std::uint32_t node, unsigned char byte);
  std::size_t slot(std::uint32_t key) const;

  Options options_;
  std::vector<Edge> edges_;  // size is a power of two; at most half of the entries are used
  unsigned shift_ = 0;
  std::vector<std::int32_t> ids_;  // of the entry that ends at each node, or -1
  // The node of the continuation prefix.
  std::uint32_t continuation_root_ = kNone;
};

}  // namespace tilewright::text
