// What a worker's end means: its cause, and the words for it.
#pragma once

#include <string>

#include "controller/api/trainjob.h"
#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

// How a worker that did not succeed was found: ended by itself, on a node taken for dead, being
// deleted by somebody else, or not there any more.
enum class Finding { kEnded, kLost, kDeleted, kVanished, kShutOut };

// A line of the ledger for it. `worker` may lack all but name and index where it vanished.
api::FailureRecord failure_of(const Observed& observed, const Worker& worker, Finding finding,
                              WallTime now);

// "worker 1 (mrpc-worker-1 on node-a) ended with exit code 3 (the last line it wrote)"
std::string in_words(const api::TrainJob& job, const api::FailureRecord& record);

// The reasons that speak of the cluster, not of the program.
bool is_infrastructure_reason(const std::string& reason);

}  // namespace tilewright::reconcile
