// The destination of backward's gradients: one flat vector for each group of shards, laid out as in
// parameters.h. Backward overwrites every element; it does not accumulate.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/nn/batch.h"

namespace tilewright::nn {

// The rows of the word embeddings that occur in the global batch. Every worker has the ids of
// the whole batch, so the compact gradients of all workers have the same rows.
struct TouchedRows {
  std::vector<std::int32_t> ids;        // ascending
  std::vector<std::int32_t> row_of_id;  // [V], valid for touched ids only

  explicit TouchedRows(std::int64_t vocab_size)
      : row_of_id(static_cast<std::size_t>(vocab_size), -1), marked_(row_of_id.size(), false) {}
  void clear();
  void mark(std::span<const std::int32_t> batch_ids);
  void finish();  // sorts and numbers the marked ids
  std::int64_t R() const { return static_cast<std::int64_t>(ids.size()); }

 private:
  std::vector<bool> marked_;
};

struct GradientSink {
  // One vector per group, of Model::gradient_count(R) elements. The last element is the
  // group's sum of losses, scaled like the gradient.
  std::vector<float*> groups;
  // Called when elements [begin, end) of all vectors are final. Ranges arrive in ascending order
  // and cover the vector; the loss is a range of its own. May be empty.
  std::function<void(std::int64_t begin, std::int64_t end)> on_gradient_ready;

  void ready(std::int64_t begin, std::int64_t end) const {
    if (on_gradient_ready) on_gradient_ready(begin, end);
  }
};

}  // namespace tilewright::nn
