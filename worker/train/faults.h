// Named points where a test can kill or delay this process through the variable TILEWRIGHT_FAULT.
//
//   TILEWRIGHT_FAULT=
//       POINT[@STEP[-STEP]][,worker=INDEX][,epoch=EPOCH][,once=FILE][,delay=MILLISECONDS]
//       [,hold=PIPE][;...]
//
// kills the process with SIGKILL when it reaches POINT in step STEP (or from the first to the
// second step), as worker INDEX, in membership epoch EPOCH. The defaults are any step, any worker
// and epoch 1, so a restarted worker survives. With a file it happens only if the file exists,
// which it removes, by default in any epoch. With a delay the process only waits; with a named
// pipe, if it exists, until that has been opened for writing and closed. Several faults are
// separated by semicolons.
// Without the variable nothing happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace tilewright::train {

// All points. Those of the exchange (reduce_scatter to bucket.done) are hit by worker/collectives.
inline constexpr std::string_view kFaultPoints[] = {
    "step.begin",
    "step.shard",  // once for each shard of the worker
    "step.after_backward",
    "step.after_exchange",
    "step.after_update",
    "checkpoint.begin",
    "checkpoint.write",  // in the background, before the first file
    "checkpoint.before_rename",
    "checkpoint.done",
    "evaluate.begin",
    "evaluate.batch",     // before each batch of an evaluation
    "best_model.loaded",  // by rank 0, the others have not got it
    "output.begin",
    "output.before_rename",
    "output.done",
    "epoch.connect",  // the membership epoch is known, its workers are not connected yet
    "epoch.begin",
    "state.agreed",
    "state.transfer",  // a part of the state is transferred
    "state.restored",
    "reduce_scatter.before_send",
    "reduce_scatter.after_send",
    "all_gather.before_send",
    "bucket.done",
};

class Faults {
 public:
  Faults() = default;
  // An empty string means no fault. An unknown point is an Error (kUsage) that lists all points.
  static Result<Faults> parse(std::string_view text);

  void enter(std::int64_t worker, std::uint64_t epoch) {
    worker_ = worker;
    epoch_ = epoch;
  }
  void at_step(std::int64_t step) { step_ = step; }
  // What a delay calls instead of std::this_thread::sleep_for().
  void sleep_with(std::function<void(std::chrono::milliseconds)> sleep) {
    sleep_ = std::move(sleep);
  }
  // Kills or delays the process if point, step, worker and epoch of a configured fault match.
  void hit(std::string_view point) const;

 private:
  struct Target {
    std::string point;
    std::optional<std::int64_t> first_step, last_step;
    std::optional<std::int64_t> worker;
    std::optional<std::uint64_t> epoch;  // default: 1, with a file any
    std::string file;                    // `once`; empty: none
    std::chrono::milliseconds delay{0};  // 0 without `pipe`: kill
    std::string pipe;                    // `hold`; empty: none
  };
  static Result<Target> parse_one(std::string_view text);
  bool matches(const Target& target, std::string_view point) const;

  std::vector<Target> targets_;
  std::function<void(std::chrono::milliseconds)> sleep_;  // empty: std::this_thread::sleep_for()
  std::int64_t worker_ = 0;
  std::uint64_t epoch_ = 0;
  std::int64_t step_ = -1;
};

}  // namespace tilewright::train
