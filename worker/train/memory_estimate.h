// The memory that a training needs, estimated before it starts, and the check that it is available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collectives/mesh.h"
#include "worker/runtime/available_memory.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::train {

// In bytes.
struct MemoryEstimate {
  std::uint64_t weights = 0;      // fp32 master weights and both AdamW moments
  std::uint64_t packed = 0;       // copies of the weights in the kernels' layouts
  std::uint64_t activations = 0;  // of the largest micro-batch
  std::uint64_t gradients = 0;
  // The copy from which checkpoints are written. 0 until the first step has shown that there is
  // memory for it: a training does without.
  std::uint64_t checkpoint_copy = 0;
  std::int64_t tokens = 0;      // in the largest micro-batch
  std::string_view batch_flag;  // the flag that limits `tokens`
  bool can_recompute = false;   // --gradient_checkpointing would reduce `activations`

  std::uint64_t total() const;
};

// Throws Failure(kMemory) if the total is more than `available` bytes.
void check_memory(const MemoryEstimate& need, std::uint64_t available);

// Gives `buffers` their pages, in pieces, before they are used. Ends as soon as `available` is less
// than the bytes that are left, so that processes that start together do not use up the memory
// before check_shared_memory() refuses them. Returns the bytes that have pages.
std::uint64_t touch_buffers(const std::vector<std::span<std::byte>>& buffers,
                            runtime::ThreadPool& pool,
                            const std::function<std::uint64_t()>& available);

// The memory needs of one process, as the other processes receive them.
struct MemoryDemand {
  std::uint64_t need = 0;  // bytes in total
  std::uint64_t held = 0;  // the part of `need` that is allocated already
  // The pools that the process allocates from: the machine and each cgroup with a limit.
  std::vector<runtime::MemoryPool> pools;
};

// `total`: bytes that this process needs, of which it holds `held`.
MemoryDemand current_demand(std::uint64_t total, std::uint64_t held);
std::string encode(const MemoryDemand& demand);
// Throws Failure(kPeerLost) for a string that encode() cannot have made.
MemoryDemand decode_demand(const std::string& text);

// The demands of all ranks, by rank. Collective.
std::vector<MemoryDemand> gather_demands(collectives::Mesh& mesh, const MemoryDemand& own);

// Throws Failure(kMemory) if one of the pools of `rank` has less left than the processes that share
// it have yet to allocate. `need` is the estimate of `rank`. All processes that share a pool get
// the same result for it.
void check_shared_memory(const MemoryEstimate& need, const std::vector<MemoryDemand>& by_rank,
                         std::size_t rank);

// The bytes that `rank` may allocate beyond its need if all processes that share one of its pools
// do the same.
std::uint64_t spare_memory(const std::vector<MemoryDemand>& by_rank, std::size_t rank);

}  // namespace tilewright::train
