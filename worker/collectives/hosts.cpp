#include "worker/collectives/hosts.h"

#include <algorithm>

#include "worker/collectives/buckets.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/step_exchange.h"

namespace tilewright::collectives {
namespace {

// Whether all pairs of the ranks [begin, end) share memory.
bool share_all(const std::vector<std::vector<bool>>& shares_memory, std::size_t begin,
               std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    for (std::size_t j = begin; j < end; ++j) {
      if (!shares_memory[i][j]) return false;
    }
  }
  return true;
}

}  // namespace

int ranks_per_host(const std::vector<std::vector<bool>>& shares_memory) {
  const std::size_t world = shares_memory.size();
  const auto fits = [&](std::size_t ranks) {
    if (world % ranks != 0) return false;
    for (std::size_t begin = 0; begin < world; begin += ranks) {
      if (!share_all(shares_memory, begin, begin + ranks)) return false;
    }
    return true;
  };
  if (share_all(shares_memory, 0, world)) return 1;
  for (std::size_t ranks = world / 2; ranks > 1; --ranks) {
    if (fits(ranks)) return static_cast<int>(ranks);
  }
  return 1;
}

std::int64_t chunk_elements_for(int hosts) {
  const std::int64_t of_two_hosts = ReducerOptions{}.chunk_elements;
  return std::clamp(of_two_hosts * hosts / 2, of_two_hosts, kBucketElements);
}

HostPlan agree_on_hosts(Mesh& mesh, MonotonicTime deadline) {
  // Fewer ranks cannot be on several hosts with several ranks each.
  if (mesh.world() < 4) return {};
  const auto world = static_cast<std::size_t>(mesh.world());
  std::vector<bool> own(world);
  for (int peer = 0; peer < mesh.world(); ++peer) {
    own[static_cast<std::size_t>(peer)] =
        peer == mesh.rank() || mesh.transport().shares_memory(peer);
  }
  const auto shares_memory = all_gather_bits(mesh, own, deadline);
  const int ranks = ranks_per_host(shares_memory);
  const bool one_host = share_all(shares_memory, 0, world);
  return {ranks, chunk_elements_for(one_host ? 1 : mesh.world() / ranks)};
}

}  // namespace tilewright::collectives
