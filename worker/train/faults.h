// Named points where a test can make this process die, by TILEWRIGHT_FAULT. Nothing is hit unless
// the variable is set.
//
//   TILEWRIGHT_FAULT=POINT[@STEP][,worker=INDEX][,epoch=EPOCH]
//
// kills the process with SIGKILL when it passes POINT (in step STEP, as worker INDEX, in membership
// epoch EPOCH; by default any step, any worker, epoch 1, so that a restarted worker lives).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::train {

// Every point of this room; worker/collectives names its own.
inline constexpr std::string_view kFaultPoints[] = {
    "step.begin",
    "step.after_backward",
    "step.after_exchange",
    "step.after_update",
    "checkpoint.begin",
    "checkpoint.before_rename",
    "checkpoint.done",
    "evaluate.begin",
    "output.begin",
    "output.before_rename",
    "output.done",
    "reduce_scatter.before_send",
    "reduce_scatter.after_send",
    "all_gather.before_send",
    "bucket.done",
};

class Faults {
 public:
  Faults() = default;
  // An empty text means no fault; an unknown point is an Error (kUsage) that lists the known.
  static Result<Faults> parse(std::string_view text);

  void enter(std::int64_t worker, std::uint64_t epoch) {
    worker_ = worker;
    epoch_ = epoch;
  }
  void at_step(std::int64_t step) { step_ = step; }
  // Does not return when the fault is due.
  void hit(std::string_view point) const;

 private:
  std::string point_;
  std::optional<std::int64_t> wanted_step_;
  std::optional<std::int64_t> wanted_worker_;
  std::uint64_t wanted_epoch_ = 1;
  std::int64_t worker_ = 0;
  std::uint64_t epoch_ = 0;
  std::int64_t step_ = -1;
};

}  // namespace tilewright::train
