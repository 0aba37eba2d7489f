// The observed workers sorted into buckets once, for the policies.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcile/elasticity.h"
#include "controller/reconcile/observed.h"
#include "controller/reconcile/plan.h"

namespace tilewright::reconcile {

struct Situation {
  const Observed& observed;
  WallTime now;
  Sizes sizes;
  std::map<int, const Worker*> workers;  // index 0 ... desired - 1: the one that counts
  std::vector<const Worker*> surplus;    // of an index beyond, or a second one of an index
};

Situation sort(const Observed& observed, WallTime now);

// Collects the times at which something is due though nothing else happens.
class Timer {
 public:
  explicit Timer(WallTime now) : now_(now) {}
  // True when `time` has come; else it is remembered.
  bool due(WallTime time);
  std::optional<WallTime::duration> requeue_after() const;

 private:
  WallTime now_;
  std::optional<WallTime> next_;
};

// The end of a job that a policy has decided on.
struct JobEnd {
  api::Phase phase = api::Phase::kFailed;
  std::string reason;   // CamelCase
  std::string message;  // one sentence
};

bool has_ended(const Worker& worker);
// It, and its pod with it: nothing of it is left on its node.
bool is_over(const Worker& worker);
// On a node that does not report any more, and silent: taken for dead, though its pod says Running,
// or Pending.
bool is_lost(const Situation& situation, const Worker& worker);
// On such a node, but not lost (yet): that it falls silent comes with no event, so `timer` is told
// to look again.
void watch_for_silence(const Situation& situation, Timer& timer);
// Its end needs no further counting.
bool is_counted(const api::TrainJobStatus& status, const std::string& uid);
// Remembers that: whoever is deleted by us is marked first.
void mark_counted(api::TrainJobStatus& status, const std::string& uid);

WorkerDeletion deletion_of(const Situation& situation, const Worker& worker, std::string why);

}  // namespace tilewright::reconcile
