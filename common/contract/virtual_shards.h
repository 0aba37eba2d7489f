// Virtual shards: the fixed number of parts of a global batch. It makes the gradient independent of
// the number of workers (exact elasticity).
#pragma once

#include <bit>
#include <cstdint>

namespace tilewright {

// Jobs with up to this many workers use the same shards, so their weights are bit-identical for any
// maxReplicas.
inline constexpr std::int64_t kDefaultVirtualShards = 8;
inline constexpr std::int64_t kMaxVirtualShards = 1024;  // and processes of one job

// Examples in one optimizer step. `workers` counts processes: replicas x nprocPerNode.
constexpr std::int64_t global_batch_size(std::int64_t per_device, std::int64_t workers,
                                         std::int64_t accumulation) {
  return per_device * workers * accumulation;
}

// The number of shards for --virtual_shards=0: the smallest power of two that is at least
// max_workers and kDefaultVirtualShards, but at most the batch size. A result below max_workers
// means that the batch is too small for that many workers.
constexpr std::int64_t choose_virtual_shards(std::int64_t global_batch, std::int64_t max_workers) {
  const auto batch = static_cast<std::uint64_t>(global_batch < 1 ? 1 : global_batch);
  auto wanted = static_cast<std::uint64_t>(kDefaultVirtualShards);
  if (max_workers > kDefaultVirtualShards) {
    wanted = std::bit_ceil(static_cast<std::uint64_t>(max_workers));
  }
  const std::uint64_t allowed = std::bit_floor(batch);
  return static_cast<std::int64_t>(wanted < allowed ? wanted : allowed);
}

}  // namespace tilewright
