// The launcher behind `tilewright-worker agent`, the counterpart of torchrun. It starts the worker
// processes of one host, prefixes each line they write, forwards signals, restarts processes that
// failed with a retryable exit code, and serves the rendezvous on one host.
#pragma once

#include <memory>

#include "common/base/log.h"
#include "common/process/signals.h"
#include "worker/elastic/agent_options.h"

namespace tilewright::elastic {

// Runs until all processes have exited. Returns 0 if all succeeded; otherwise the exit code of the
// first failure that was permanent (1 to 127) or exceeded max_restarts; kReplaced if a process of
// another agent has replaced one of its own; 143 or 130 after a signal. Throws Failure if it cannot
// start.
int run_agent(const AgentOptions& options, const StopSignals& signals,
              const std::shared_ptr<Logger>& log);

}  // namespace tilewright::elastic
