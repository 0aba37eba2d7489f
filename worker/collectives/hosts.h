// How ranks are distributed over hosts, as far as the exchange of gradients depends on it.
#pragma once

#include <vector>

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// shares_memory[i][j]: whether ranks i and j share memory. Returns the largest R such that the ranks
// of each of the groups [0, R), [R, 2R), ... share memory; 1 if there is none, or if all ranks share
// memory. A host with more ranks than others may have several groups.
int ranks_per_host(const std::vector<std::vector<bool>>& shares_memory);

// ranks_per_host() of the mesh, equal on all ranks. Collective.
int agree_on_ranks_per_host(Mesh& mesh, MonotonicTime deadline);

}  // namespace tilewright::collectives
