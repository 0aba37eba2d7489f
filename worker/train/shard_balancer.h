// Notices workers that stay slower than the others, and decides when their shards move. It reads no
// clock: all ranks give it the same numbers and come to the same decisions, without a message. The
// gradient does not depend on who computes a shard, so the weights keep their bits.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::train {

// One rank's forward and backward passes in one step.
struct RankCost {
  double seconds = 0;  // without waiting for other ranks; 0: not measured
  double flops = 0;    // of its examples, with padding
};

// Medians of the last window.
struct RankSpeed {
  double seconds = 0;         // of computation per step
  double others_seconds = 0;  // the median of the other ranks'
  // Time per FLOP, divided by the median of the other ranks'; without the effect of the split.
  double slowdown = 1;
  bool slow = false;
};

// How fast the ranks of a membership epoch compute, and which shards they have.
struct RankSpeeds {
  std::vector<RankSpeed> speeds;  // by rank; empty before the first window
  std::vector<collectives::Range> split;
};

struct BalancerOptions {
  // A window ends after this many steps and this much computation of its slowest ranks, so that a
  // short disturbance is not taken for a slow worker.
  int window_steps = 5;
  double window_seconds = 1;
  // A rank is slow, or no longer slow, after this many windows in a row beyond the bound; another
  // split must be better for as many, and between two moves of shards there are as many.
  int windows = 3;
  double slow_from = 1.3;  // slowdown
  double recovered_below = 1.2;
  double least_gain = 0.1;  // of the expected time per step, for which shards move
  // After so many windows of an uneven split the even split returns, to measure all ranks with it;
  // then after twice as many.
  int windows_to_even_split = 20;
};

class ShardBalancer {
 public:
  // `movable`: whether the shards can be split unevenly. Begins with the even split.
  ShardBalancer(int world, int shards, bool movable, const BalancerOptions& options = {});

  // Adds a completed step. True: a window has ended, and speeds() are new. A step in which not all
  // ranks were measured is not counted.
  bool add(std::span<const RankCost> by_rank);
  // Whether the last window made a rank slow or ended its slowness.
  bool slow_ranks_changed() const { return slow_ranks_changed_; }
  // By rank. Empty before the end of the first window.
  const std::vector<RankSpeed>& speeds() const { return speeds_; }

  const std::vector<collectives::Range>& split() const { return split_; }
  // After a window: the split to change to; nullopt: the current one stays. The even split if no
  // rank is slow. `is_allowed`: as in collectives::balanced_split().
  std::optional<std::vector<collectives::Range>> better_split(
      const std::function<bool(int rank, collectives::Range)>& is_allowed) const;
  void set_split(std::vector<collectives::Range> split);
  // Waits as many windows as after a move before the next one, because this one was impossible.
  void postpone() { windows_since_move_ = 0; }

 private:
  void end_window();
  // The split for the speeds of the last window, if it is not the current one.
  std::optional<std::vector<collectives::Range>> split_for_speeds(
      const std::function<bool(int rank, collectives::Range)>& is_allowed) const;

  const BalancerOptions options_;
  const int shards_;
  const bool movable_;
  std::vector<collectives::Range> split_;
  std::vector<std::vector<RankCost>> window_;  // by rank, then step
  double window_seconds_ = 0;
  std::vector<double> costs_;  // seconds per FLOP by rank in the last window
  // By rank: by how much its part of the split raises its time per FLOP relative to the others. The
  // fixed cost of a step weighs more in fewer shards; without this a rank with few shards would not
  // recover. Measured as the change of the slowdown in the first window after a move.
  std::vector<double> effect_of_split_;
  bool split_is_new_ = false;
  std::vector<RankSpeed> speeds_;
  std::vector<int> windows_beyond_;  // by rank, in a row
  int windows_since_move_;
  int windows_to_even_split_;
  int windows_with_gain_ = 0;  // in a row in which another split was better
  bool slow_ranks_changed_ = false;
};

}  // namespace tilewright::train
