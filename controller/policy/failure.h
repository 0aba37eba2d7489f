// The cause of a worker's failure, as an entry of the failure history.
#pragma once

#include "controller/api/trainjob.h"
#include "controller/policy/observed.h"

namespace tilewright::policy {

enum class FailureKind {
  kExited,       // the worker ended by itself
  kNodeLost,     // its node does not report and its heartbeats have stopped
  kDeleted,      // it is being deleted, but not by a plan
  kDisappeared,  // it no longer exists, and its end was not observed
  kStaleKey,     // it has a job key that the coordinator does not accept
};

// If `kind` is kDisappeared, only the name and the index of `worker` are used.
api::FailureRecord failure_of(const Observed& observed, const Worker& worker, FailureKind kind,
                              WallTime now);

}  // namespace tilewright::policy
