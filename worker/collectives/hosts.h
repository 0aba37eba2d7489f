// How ranks are distributed over hosts, as far as the exchange of gradients depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// shares_memory[i][j]: whether ranks i and j share memory. Returns the largest R such that the
// ranks of each of the groups [0, R), [R, 2R), ... share memory; 1 if there is none, or if all
// ranks share memory. A host with more ranks than others may have several groups.
int ranks_per_host(const std::vector<std::vector<bool>>& shares_memory);

// Floats per chunk with which the slices of `hosts` hosts are no smaller than those of two: each
// frame costs CPU time of its own, which between many hosts would exceed that of its bytes.
std::int64_t chunk_elements_for(int hosts);

// Of ReducerOptions.
struct HostPlan {
  int ranks_per_host = 1;
  std::int64_t chunk_elements = chunk_elements_for(1);
};

// The plan for the ranks of the mesh, equal on all of them. Collective.
HostPlan agree_on_hosts(Mesh& mesh, MonotonicTime deadline);

}  // namespace tilewright::collectives
