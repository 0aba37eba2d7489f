// The examples of each step's global batch. The order depends only on the seed and, with
// group_by_length, on the lengths of the examples, so every worker computes it without
// communication, also after a restart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tilewright::train {

struct DataOrderOptions {
  std::int64_t examples = 0;
  std::int64_t examples_per_epoch = 0;  // the others of an epoch's random order are left out
  std::int64_t global_batch = 0;
  std::uint64_t seed = 0;
  // Tokens of each example. If not empty, examples of similar length share a batch, as with
  // transformers' LengthGroupedSampler: the random order is cut into up to 50 batches at a time
  // (fewer if there would be less than four such groups), each group is sorted by length, longest
  // first, and the longest example of all comes first. Examples of equal length keep the random
  // order.
  std::vector<std::int32_t> lengths = {};
};

class DataOrder {
 public:
  explicit DataOrder(DataOrderOptions options);

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // The examples of step `step`, counted from 0 over the whole training, in the order of the global
  // batch. The last step of an epoch may have fewer than global_batch. Valid until the next call.
  std::span<const std::int32_t> batch(std::int64_t step);

 private:
  void shuffle(std::int64_t epoch);
  void group_by_length();

  DataOrderOptions options_;
  std::int64_t steps_per_epoch_;
  std::int64_t epoch_ = -1;
  std::vector<std::int32_t> order_;
};

}  // namespace tilewright::train
