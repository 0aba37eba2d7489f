// What a training will hold in memory, reckoned before it starts, and whether that fits.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright::train {

// In bytes.
struct MemoryNeed {
  std::uint64_t weights = 0;      // masters and both moments
  std::uint64_t packed = 0;       // copies of the weights in the kernels' layouts
  std::uint64_t activations = 0;  // of the largest pass
  std::uint64_t gradients = 0;
  std::int64_t tokens = 0;      // rows of the largest pass
  std::string_view batch_flag;  // which decides how many these are

  std::uint64_t total() const;
};

// Failure (kMemory) with one sentence if `available` bytes are fewer than the total.
void check_memory(const MemoryNeed& need, std::uint64_t available);

}  // namespace tilewright::train
