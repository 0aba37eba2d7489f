// Virtual shards: into how many fixed parts a global batch is cut, so that a gradient does not
// depend on how many workers computed it (DESIGN: exact elasticity).
#pragma once

#include <bit>
#include <cstdint>

namespace tilewright {

// Jobs of up to this many workers have the same shards, hence the same weights bit for bit,
// whatever maxReplicas says.
inline constexpr std::int64_t kDefaultVirtualShards = 8;
inline constexpr std::int64_t kMaxVirtualShards = 1024;

// Examples in one optimizer step. `workers` counts processes: replicas x nprocPerNode.
constexpr std::int64_t global_batch_size(std::int64_t per_device, std::int64_t workers,
                                         std::int64_t accumulation) {
  return per_device * workers * accumulation;
}

// The number of shards where the user names none (--virtual_shards=0): a power of two, at least
// max_workers and at least kDefaultVirtualShards, as far as the batch allows. A result below
// max_workers means that the batch is too small for so many workers.
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
