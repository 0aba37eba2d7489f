// Splits the virtual shards among ranks that need different times for one. Pure functions; every
// rank computes the same split from the same numbers.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

// Expected time of the slowest rank: the maximum of cost x shards. `costs`: of one shard, by rank,
// in any unit.
double expected_cost(std::span<const Range> split, std::span<const double> costs);

// The split with the smallest expected cost in which every rank has at least one shard, because the
// speed of a rank without shards cannot be measured. Among equals it is one with the fewest aligned
// subtrees: each takes a gradient buffer and is sent on its own. nullopt: the cost of every allowed
// split exceeds `max_cost`, or there are fewer shards than ranks. `costs` are above 0.
// `is_allowed`: whether a rank can have these shards.
std::optional<std::vector<Range>> balanced_split(
    std::span<const double> costs, int shards, double max_cost,
    const std::function<bool(int rank, Range)>& is_allowed);

}  // namespace tilewright::collectives
