#include "worker/train/shard_balancer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/collectives/balanced_split.h"

namespace tilewright::train {
namespace {

bool is_measured(const RankCost& cost) {
  return cost.seconds > 0 && std::isfinite(cost.seconds) && cost.flops > 0;
}

// The lower of two middle values: if half of the ranks are slow, they are compared with the others.
double median(std::vector<double> values) {
  const auto middle = values.begin() + (static_cast<std::ptrdiff_t>(values.size()) - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Of the effect of a split. A larger change comes from the rank itself.
constexpr double kMaxEffect = 4;

double median_of_others(std::vector<double> values, std::size_t rank) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(rank));
  return median(std::move(values));
}

}  // namespace

ShardBalancer::ShardBalancer(int world, int shards, bool movable, const BalancerOptions& options)
    : options_(options),
      shards_(shards),
      movable_(movable),
      split_(collectives::even_split(world, shards)),
      window_(static_cast<std::size_t>(world)),
      effect_of_split_(static_cast<std::size_t>(world), 1),
      windows_beyond_(static_cast<std::size_t>(world)),
      windows_since_move_(options.windows),
      windows_to_even_split_(options.windows_to_even_split) {}

bool ShardBalancer::add(std::span<const RankCost> by_rank) {
  TW_CHECK(by_rank.size() == window_.size(), "costs of {} ranks, expected {}", by_rank.size(),
           window_.size());
  if (window_.size() < 2 || !std::ranges::all_of(by_rank, is_measured)) return false;
  double slowest = 0;
  for (std::size_t rank = 0; rank < window_.size(); ++rank) {
    window_[rank].push_back(by_rank[rank]);
    slowest = std::max(slowest, by_rank[rank].seconds);
  }
  window_seconds_ += slowest;
  if (static_cast<int>(window_[0].size()) < options_.window_steps ||
      window_seconds_ < options_.window_seconds) {
    return false;
  }
  end_window();
  return true;
}

void ShardBalancer::end_window() {
  const std::size_t world = window_.size();
  costs_.clear();
  std::vector<double> seconds;
  for (std::vector<RankCost>& steps : window_) {
    std::vector<double> step_costs, step_seconds;
    for (const RankCost& step : steps) {
      step_costs.push_back(step.seconds / step.flops);
      step_seconds.push_back(step.seconds);
    }
    costs_.push_back(median(std::move(step_costs)));
    seconds.push_back(median(std::move(step_seconds)));
    steps.clear();
  }
  window_seconds_ = 0;
  ++windows_since_move_;
  slow_ranks_changed_ = false;
  speeds_.resize(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    RankSpeed& speed = speeds_[rank];
    speed.seconds = seconds[rank];
    speed.others_seconds = median_of_others(seconds, rank);
    const double measured = costs_[rank] / median_of_others(costs_, rank);
    if (split_is_new_ && speed.slow) {
      effect_of_split_[rank] = std::clamp(measured / speed.slowdown, 1.0, kMaxEffect);
    }
    speed.slowdown = measured / effect_of_split_[rank];
    const bool beyond = speed.slow ? speed.slowdown < options_.recovered_below
                                   : speed.slowdown > options_.slow_from;
    windows_beyond_[rank] = beyond ? windows_beyond_[rank] + 1 : 0;
    if (windows_beyond_[rank] < options_.windows) continue;
    windows_beyond_[rank] = 0;
    speed.slow = !speed.slow;
    slow_ranks_changed_ = true;
  }
  split_is_new_ = false;
  const bool gain = movable_ && split_for_speeds([](int, collectives::Range) { return true; });
  windows_with_gain_ = gain ? windows_with_gain_ + 1 : 0;
}

std::optional<std::vector<collectives::Range>> ShardBalancer::split_for_speeds(
    const std::function<bool(int rank, collectives::Range)>& is_allowed) const {
  std::vector<double> others;
  for (std::size_t rank = 0; rank < speeds_.size(); ++rank) {
    if (!speeds_[rank].slow) others.push_back(costs_[rank]);
  }
  if (others.size() == speeds_.size()) {
    auto even = collectives::even_split(static_cast<int>(speeds_.size()), shards_);
    return even == split_ ? std::nullopt : std::optional(std::move(even));
  }
  if (others.empty()) return std::nullopt;
  // The other ranks count as equally fast, so that noise between them moves nothing.
  std::vector<double> costs(speeds_.size(), median(std::move(others)));
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const RankSpeed& speed = speeds_[rank];
    if (!speed.slow) continue;
    // A rank that takes longer than the others has too many shards, whatever the reason.
    const bool longest = speed.seconds > speed.others_seconds;
    costs[rank] = longest ? costs_[rank] : costs_[rank] / effect_of_split_[rank];
  }
  const double most = (1 - options_.least_gain) * collectives::expected_cost(split_, costs);
  return collectives::balanced_split(costs, shards_, most, is_allowed);
}

std::optional<std::vector<collectives::Range>> ShardBalancer::better_split(
    const std::function<bool(int rank, collectives::Range)>& is_allowed) const {
  const auto even = collectives::even_split(static_cast<int>(split_.size()), shards_);
  if (movable_ && split_ != even && windows_since_move_ >= windows_to_even_split_) return even;
  const bool lasts = slow_ranks_changed_ || windows_with_gain_ >= options_.windows;
  if (!movable_ || !lasts || windows_since_move_ < options_.windows) return std::nullopt;
  return split_for_speeds(is_allowed);
}

void ShardBalancer::set_split(std::vector<collectives::Range> split) {
  split_ = std::move(split);
  windows_since_move_ = windows_with_gain_ = 0;
  split_is_new_ = split_ != collectives::even_split(static_cast<int>(split_.size()), shards_);
  if (split_is_new_) return;
  std::ranges::fill(effect_of_split_, 1.0);
  const bool slow = std::ranges::any_of(speeds_, &RankSpeed::slow);
  windows_to_even_split_ = slow ? 2 * windows_to_even_split_ : options_.windows_to_even_split;
}

}  // namespace tilewright::train
