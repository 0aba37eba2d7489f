// What a training will hold in memory, reckoned before it starts, and whether that fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/runtime/memory.h"

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

// What one process draws from the pools that it shares, as the others hear of it.
struct MemoryDemand {
  std::uint64_t need = 0;  // bytes, in all
  std::uint64_t held = 0;  // of which so many are no longer among what the pools have left
  std::vector<runtime::MemoryPool> pools;
};

// `total`: what this process will hold.
MemoryDemand demand_now(std::uint64_t total);
std::string encode(const MemoryDemand& demand);
// Failure (kPeerLost) for a text that encode() does not make.
MemoryDemand decode_demand(const std::string& text);

// Failure (kMemory) with one sentence if a pool of `rank` has less left than all processes that
// share it are still to take. `need` is that of `rank`. Those of a pool come to the same result.
void check_shared_memory(const MemoryNeed& need, const std::vector<MemoryDemand>& by_rank,
                         std::size_t rank);

}  // namespace tilewright::train
