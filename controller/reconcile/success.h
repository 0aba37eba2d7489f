// When a job has succeeded: worker 0 ended with 0 (it does so after its output was renamed into
// place), and the others' ends were awaited, for a while.
#pragma once

#include <optional>

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

struct Success {
  bool decided = false;       // worker 0 has done it: nothing is started or counted any more
  std::optional<JobEnd> end;  // and the others have ended too, or had their time
};

Success judge_success(const Situation& situation, Timer& timer);

}  // namespace tilewright::reconcile
