// The examples of each step's global batch. The order depends only on the seed, so every worker
// computes it without communication, also after a restart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tilewright::train {

class DataOrder {
 public:
  DataOrder(std::int64_t examples, std::int64_t global_batch, std::uint64_t seed);

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // The examples of step `step`, counted from 0 over the whole training, in the order of the global
  // batch. The last step of an epoch may have fewer than global_batch. Valid until the next call.
  std::span<const std::int32_t> batch(std::int64_t step);

 private:
  void shuffle(std::int64_t epoch);

  std::int64_t global_batch_;
  std::uint64_t seed_;
  std::int64_t steps_per_epoch_;
  std::int64_t epoch_ = -1;
  std::vector<std::int32_t> order_;
};

}  // namespace tilewright::train
