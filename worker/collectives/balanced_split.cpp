#include "worker/collectives/balanced_split.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilewright::collectives {
namespace {

// The smallest possible maximum of cost x shards: each further shard goes to the rank that would
// have the smallest cost with it.
double smallest_cost(std::span<const double> costs, int shards) {
  std::vector<int> shards_of_rank(costs.size(), 1);
  const auto cost_with_one_more = [&](std::size_t rank) {
    return costs[rank] * (shards_of_rank[rank] + 1);
  };
  for (int left = shards - static_cast<int>(costs.size()); left > 0; --left) {
    std::size_t next = 0;
    for (std::size_t rank = 1; rank < costs.size(); ++rank) {
      if (cost_with_one_more(rank) < cost_with_one_more(next)) next = rank;
    }
    ++shards_of_rank[next];
  }
  double largest = 0;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    largest = std::max(largest, costs[rank] * shards_of_rank[rank]);
  }
  return largest;
}

// The most shards at `cost` each whose total is at most `limit`.
int most_shards(double cost, double limit, int shards) {
  int most = 0;
  while (most < shards && cost * (most + 1) <= limit) ++most;
  return most;
}

// The split with the fewest subtrees in which no rank has more than most[rank] shards.
std::optional<std::vector<Range>> split_with_fewest_subtrees(
    const std::vector<int>& most, int shards,
    const std::function<bool(int rank, Range)>& is_allowed) {
  constexpr int kImpossible = std::numeric_limits<int>::max();
  const auto world = static_cast<int>(most.size());
  const auto row = static_cast<std::size_t>(shards) + 1;
  // By rank and end: the fewest subtrees of ranks 0 to rank over the shards [0, end), and where the
  // rank's shards then begin.
  std::vector<int> fewest(row, kImpossible);
  fewest[0] = 0;
  std::vector<std::vector<int>> begin_of(most.size(), std::vector<int>(row));
  for (int rank = 0; rank < world; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    std::vector<int> next(row, kImpossible);
    const int last_end = shards - (world - 1 - rank);  // leaves one shard for each later rank
    for (int end = rank + 1 == world ? shards : rank + 1; end <= last_end; ++end) {
      for (int begin = std::max(rank, end - most[index]); begin < end; ++begin) {
        const int before = fewest[static_cast<std::size_t>(begin)];
        if (before == kImpossible || !is_allowed(rank, {begin, end})) continue;
        const int subtrees = before + static_cast<int>(aligned_subtrees({begin, end}).size());
        if (subtrees >= next[static_cast<std::size_t>(end)]) continue;
        next[static_cast<std::size_t>(end)] = subtrees;
        begin_of[index][static_cast<std::size_t>(end)] = begin;
      }
    }
    fewest = std::move(next);
  }
  if (fewest[static_cast<std::size_t>(shards)] == kImpossible) return std::nullopt;
  std::vector<Range> split(most.size());
  int end = shards;
  for (std::size_t rank = most.size(); rank-- > 0;) {
    const int begin = begin_of[rank][static_cast<std::size_t>(end)];
    split[rank] = {begin, end};
    end = begin;
  }
  return split;
}

}  // namespace

double expected_cost(std::span<const Range> split, std::span<const double> costs) {
  double largest = 0;
  for (std::size_t rank = 0; rank < split.size(); ++rank) {
    largest = std::max(largest, costs[rank] * static_cast<double>(split[rank].size()));
  }
  return largest;
}

std::optional<std::vector<Range>> balanced_split(
    std::span<const double> costs, int shards, double max_cost,
    const std::function<bool(int rank, Range)>& is_allowed) {
  TW_CHECK(!costs.empty() && std::ranges::all_of(costs, [](double cost) { return cost > 0; }),
           "the costs of {} ranks are not all above 0", costs.size());
  if (shards < static_cast<int>(costs.size())) return std::nullopt;
  double limit = smallest_cost(costs, shards);
  while (limit <= max_cost && std::isfinite(limit)) {
    std::vector<int> most;
    double next = std::numeric_limits<double>::infinity();  // at which a rank can have one more
    for (const double cost : costs) {
      most.push_back(most_shards(cost, limit, shards));
      if (most.back() < shards) next = std::min(next, cost * (most.back() + 1));
    }
    if (auto split = split_with_fewest_subtrees(most, shards, is_allowed)) return split;
    limit = next;
  }
  return std::nullopt;
}

}  // namespace tilewright::collectives
