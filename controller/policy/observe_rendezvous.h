// Converts the coordinator's snapshot of a job into the RendezvousView that reconcile() reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/rendezvous/snapshot.h"
#include "controller/policy/observed.h"

namespace tilewright::policy {

// `before`: the last report to an earlier coordinator, used until the snapshot has a report. No
// member is silent yet: see mark_silent(). `global_batch` is in examples.
RendezvousView view_of(const rendezvous::Snapshot& snapshot,
                       const std::optional<rendezvous::Progress>& before,
                       std::int64_t global_batch);

// Marks a worker as silent if the coordinator does not see it as a member although it runs, or
// although a node that does not report may have started it. `listening`: how long the coordinator
// has been listening. A finished worker leaves the rendezvous and is marked too; it is not
// restarted, because the training is complete by then (success.h).
void mark_silent(const std::vector<Worker>& workers, Duration listening, Duration heartbeat_timeout,
                 WallTime now, RendezvousView& view);

}  // namespace tilewright::policy
