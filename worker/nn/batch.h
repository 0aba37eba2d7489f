// The input of one forward and backward pass: packed examples of consecutive shards. Positions are
// padded only on request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/nn/head.h"

namespace tilewright::nn {

// What the rows of a matrix represent: each token, or the first token ([CLS]) of each example.
enum class Rows { kTokens, kExamples };

// 2^k consecutive, aligned shards: a subtree of the gradient's tree. Offsets count from the
// beginning of the batch; both lists have 2^k + 1 entries.
struct ShardGroup {
  std::int64_t first_shard = 0;
  std::vector<std::int32_t> example_offsets;
  std::vector<std::int32_t> token_offsets;

  kernels::Shards offsets(Rows rows) const {
    return rows == Rows::kTokens ? token_offsets : example_offsets;
  }
};

// Lists, for each embedding row, the tokens whose gradients it sums; see EmbeddingBackward.
struct RowIndex {
  std::vector<std::int32_t> row_offsets;
  std::vector<std::int32_t> occurrences;
  // Indexes tokens [begin, end) without those of id `without`. row_of_id[id] is the row of an id,
  // in [0, rows).
  void build(std::span<const std::int32_t> ids, std::int64_t begin, std::int64_t end,
             const std::int32_t* row_of_id, std::int64_t rows, std::int32_t without = -1);
};

// Pads each example to `length` rows. The model computes these rows, but no token attends to them.
struct Padding {
  std::int64_t length = 0;  // 0: no padding
  std::int32_t id = 0;      // of [PAD]
  // Question answering: the softmax of the loss includes the padding, as in transformers.
  bool in_loss = false;
};

// Upper bounds of batches.
struct BatchLimits {
  std::int64_t tokens = 0;
  std::int64_t examples = 0;
  std::int64_t max_seqlen = 0;
};

struct Batch {
  std::vector<std::int32_t> ids, types, positions, token_example;  // [T]
  std::vector<std::int32_t> cu_seqlens = {0};                      // [B + 1]
  std::vector<std::int32_t> example;                               // [B], index in the global batch
  std::vector<std::int32_t> labels, last_labels;                   // [B], see Target
  std::vector<float> values;                                       // [B], see Target
  std::vector<std::int32_t> lengths;                               // [B], without padding
  std::vector<std::int32_t> scored;                                // [B], tokens in the loss
  std::vector<std::int32_t> first_positions;                       // [B] zeros
  std::int64_t max_seqlen = 0;                                     // rows of the longest example
  std::vector<ShardGroup> groups;

  std::int64_t B() const { return static_cast<std::int64_t>(example.size()); }
  std::int64_t T() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t count(Rows rows) const { return rows == Rows::kTokens ? T() : B(); }
  BatchLimits limits() const { return {T(), B(), max_seqlen}; }
  kernels::RowIdentity identity(Rows rows) const;
  void clear();
  // The first `first_segment` tokens have type 0, the others type 1.
  void add(std::span<const std::int32_t> example_ids, std::size_t first_segment,
           const Target& target, std::int32_t index_in_global_batch, const Padding& padding = {});
  // Starts a group at shard `first_shard`. Call close_shard() after the last example of each shard.
  void open_group(std::int64_t first_shard);
  void close_shard();
};

}  // namespace tilewright::nn
