// The launcher behind `tilewright-worker agent`, the counterpart of torchrun. It starts the worker
// processes of one host, prefixes each line they write, forwards signals, restarts processes that
// failed with a retryable exit code, and serves the rendezvous on the first host.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/net/address.h"
#include "common/process/signals.h"
#include "common/rendezvous/types.h"
#include "worker/elastic/session.h"

namespace tilewright::elastic {

struct AgentOptions {
  std::vector<std::string> command;  // the worker: its program (a path) and its arguments
  int nproc_per_node = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;
  int max_restarts = 3;  // of all processes of this host together
  // Address of the rendezvous, which host 0 serves; nullopt: this host, any free port.
  std::optional<net::Address> rdzv_endpoint;
  std::string rdzv_id;  // the job's UID; empty: random, on a single host only
  // The job's secret. On a single host it is created (mode 0600) if it is missing or not named;
  // several hosts need a copy of the same file.
  std::filesystem::path rdzv_key_file;
  bool tls = false;  // --rdzv_conf tls=true: all traffic of the workers under TLS
  // In a pod of the operator: the environment names the rendezvous, the job and the key, and this
  // agent only starts processes.
  bool external_rendezvous = false;
  int worker_index = 0;  // with `external_rendezvous`; otherwise node_rank is used

  rendezvous::Settings rendezvous;  // timeouts; the world sizes come from the nodes
  Duration grace_period = std::chrono::seconds(30);         // from the signal to the kill
  Duration restart_delay = std::chrono::milliseconds(100);  // doubling up to restart_delay_limit
  Duration restart_delay_limit = std::chrono::seconds(10);
  int output_fd = 1;  // destination of the processes' lines
  int error_fd = 2;
};

// "2" or "1:4", as torchrun's --nnodes. Throws Failure(kUsage).
void set_nnodes(AgentOptions& options, const std::string& text);

// "tls=true", as torchrun's --rdzv_conf. Throws Failure(kUsage).
void set_rdzv_conf(AgentOptions& options, const std::string& text);

// Uses the rendezvous that the environment names, unless an endpoint is given. Throws
// Failure(kUsage) for options that exclude each other.
void complete_options(AgentOptions& options, const Environment& environment);

// Runs until all processes have exited. Returns 0 if all succeeded; otherwise the exit code of the
// first failure that was permanent (1 to 127) or exceeded max_restarts; 143 or 130 after a signal.
// Throws Failure if it cannot start.
int run_agent(const AgentOptions& options, const StopSignals& signals,
              const std::shared_ptr<Logger>& log);

}  // namespace tilewright::elastic
