// What the coordinator of the rendezvous shows of a job, as reconcile's Progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/rendezvous/snapshot.h"
#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

// Progress, and what a report says beside it that only people read.
struct RendezvousView {
  Progress progress;
  std::string phase;             // "training", "evaluating", ...
  double gflops_per_second = 0;  // of all workers; 0: not told
  double peak_gflops = 0;        // what their CPUs could do; 0: not told
};

// `before` is what was last told by an earlier coordinator or epoch, for as long as the snapshot
// has nothing of its own. Nobody is silent here: see mark_silent().
RendezvousView view_of(const rendezvous::Snapshot& snapshot,
                       const std::optional<rendezvous::Progress>& before,
                       std::int64_t global_batch);

// Workers that run, or that a node which does not report any more may have started, and of which
// the coordinator, which has been listening for `listening`, has no living member. Those that have
// done all their work leave without a word and are silent, too; nothing is restarted then
// (success.h).
void mark_silent(const std::vector<Worker>& workers, Duration listening, Duration heartbeat_timeout,
                 WallTime now, Progress& progress);

}  // namespace tilewright::reconcile
