// What becomes of a worker's state when workers leave the training at a step boundary.
#pragma once

#include <optional>

namespace tilewright::train {

// What a worker knows at the boundary.
struct Departure {
  bool is_rank0 = false;
  // In the step that all have completed: that this worker leaves, and whether all said so.
  bool said_to_leave = false;
  bool all_said_to_leave = false;
  // At the boundary, where a later signal counts as well: what this worker told the others, and
  // whether all leave; nullopt: the exchange failed, because a worker that completed it has ended
  // the membership epoch.
  bool leaves = false;
  std::optional<bool> all_leave = std::nullopt;
};

struct HandOver {
  bool writes = false;   // this worker writes the checkpoint now
  bool is_kept = false;  // by other workers or in a checkpoint, so that this one can end without it
};

// If at least one worker stays, those that stay keep the state. If none does, at least one writes
// it in the membership epoch, or has is_kept false and must write it when it ends (see
// save_outside_of_epochs() in run.cpp).
constexpr HandOver hand_over(const Departure& worker) {
  const bool is_certain = worker.all_leave.has_value();
  const bool all_leave = worker.all_leave.value_or(worker.all_said_to_leave);
  // Without the exchange, only what was said in the step is known to all.
  const bool leaves = is_certain ? worker.leaves : worker.said_to_leave;
  // A worker that has heard that all leave relies on rank 0, which may not have heard it.
  const bool may_be_last = all_leave || (!is_certain && leaves);
  return {.writes = worker.is_rank0 && may_be_last, .is_kept = all_leave || leaves};
}

}  // namespace tilewright::train
