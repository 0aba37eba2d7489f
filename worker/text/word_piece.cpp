#include "worker/text/word_piece.h"

#include <bit>

#include "common/base/check.h"

namespace tilewright::text {

WordPiece::WordPiece(const std::vector<std::pair<std::string, std::int32_t>>& entries,
                     const Options& options)
    : options_(options) {
  std::size_t bytes = options_.continuation.size();
  for (const auto& entry : entries) bytes += entry.first.size();
  TW_CHECK(bytes <= kMaxVocabularyBytes, "vocabulary of {} bytes, expected at most {}", bytes,
           kMaxVocabularyBytes);
  ids_.assign(1, -1);
  // The table grows as nodes are added: entries share prefixes, so there are far fewer nodes than
  // bytes.
  const auto resize = [this](std::size_t capacity) {
    const std::vector<Edge> old = std::move(edges_);
    edges_.assign(capacity, Edge{});
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(capacity));
    for (const Edge& edge : old) {
      if (edge.child != kNone) edges_[slot(edge.key)] = edge;
    }
  };
  resize(1024);
  const auto walk = [&](std::string_view word) {
    std::uint32_t node = 0;
    for (const char c : word) {
      if (2 * (ids_.size() + 1) > edges_.size()) resize(2 * edges_.size());
      node = add_child(node, static_cast<unsigned char>(c));
    }
    return node;
  };
  continuation_root_ = walk(options_.continuation);
  for (const auto& [word, id] : entries) {
    if (!word.empty()) ids_[walk(word)] = id;
  }
}

std::size_t WordPiece::slot(std::uint32_t key) const {
  // Fibonacci hashing: uses the high bits of the product, which depend on all bits of the key.
  std::size_t at = (key * 0x9E3779B97F4A7C15U) >> shift_;
  while (edges_[at].child != kNone && edges_[at].key != key) at = (at + 1) & (edges_.size() - 1);
  return at;
}

std::uint32_t WordPiece::child(std::uint32_t node, unsigned char byte) const {
  return edges_[slot(node << 8 | byte)].child;
}

std::uint32_t WordPiece::add_child(std::uint32_t node, unsigned char byte) {
  Edge& edge = edges_[slot(node << 8 | byte)];
  if (edge.child == kNone) {
    edge = {node << 8 | byte, static_cast<std::uint32_t>(ids_.size())};
    ids_.push_back(-1);
  }
  return edge.child;
}

void WordPiece::split(std::string_view word, std::size_t characters, std::vector<std::int32_t>& ids,
                      std::vector<std::size_t>* ends) const {
  const std::size_t before = ids.size();
  const std::size_t ends_before = ends == nullptr ? 0 : ends->size();
  std::size_t at = characters > options_.max_characters ? word.size() + 1 : 0;
  // Entries are valid UTF-8, so the longest match cannot end inside a character.
  while (at < word.size()) {
    std::uint32_t node = at == 0 ? 0 : continuation_root_;
    std::size_t end = at;
    std::int32_t best = -1;
    for (std::size_t i = at; i < word.size(); ++i) {
      node = child(node, static_cast<unsigned char>(word[i]));
      if (node == kNone) break;
      if (ids_[node] >= 0) {
        best = ids_[node];
        end = i + 1;
      }
    }
    if (best < 0) {
      at = word.size() + 1;
    } else {
      ids.push_back(best);
      if (ends != nullptr) ends->push_back(end);
      at = end;
    }
  }
  if (at > word.size()) {
    ids.resize(before);
    ids.push_back(options_.unknown_id);
    if (ends != nullptr) {
      ends->resize(ends_before);
      ends->push_back(word.size());
    }
  }
}

}  // namespace tilewright::text
