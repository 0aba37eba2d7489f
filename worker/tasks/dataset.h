// The examples of a split in the form that the trainer reads: token ids of all examples, packed
// without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/text/tokenizer.h"

namespace tilewright::tasks {

struct Dataset {
  std::vector<std::int32_t> ids;            // [tokens], with [CLS] and [SEP]
  std::vector<std::int32_t> types;          // [tokens], 0 or 1
  std::vector<std::int64_t> offsets = {0};  // [examples + 1]: where each begins, and the end
  std::vector<std::int32_t> labels;  // [examples], 0 to num_labels - 1; empty for a regression
  std::vector<float> targets;        // [examples] of a regression, else empty

  std::size_t size() const { return offsets.size() - 1; }
  std::size_t tokens() const { return ids.size(); }
  std::size_t length(std::size_t example) const {
    return static_cast<std::size_t>(offsets[example + 1] - offsets[example]);
  }
  std::span<const std::int32_t> ids_of(std::size_t example) const;
  std::span<const std::int32_t> types_of(std::size_t example) const;

  // Adds an example's tokens. The caller adds its label or target.
  void append(const text::Encoding& encoding);
};

// Throws Failure(kData) if a token id is not below vocab_size, the rows of the model's word
// embeddings: tokenizer and model then do not match.
void check_ids(const Dataset& dataset, std::int64_t vocab_size);

}  // namespace tilewright::tasks
