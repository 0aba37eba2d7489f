// What `tilewright-worker agent` does: torchrun's place. It starts the worker processes of one
// host, puts their seat before each line they write, passes signals on, starts again what failed
// for a passing reason, and on the first host serves the rendezvous.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/net/address.h"
#include "common/rendezvous/types.h"
#include "worker/elastic/session.h"
#include "worker/elastic/signals.h"

namespace tilewright::elastic {

struct AgentOptions {
  std::vector<std::string> command;  // the worker: its program (a path) and its arguments
  int nproc_per_node = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;
  int max_restarts = 3;  // of all processes of this host together
  // Where the rendezvous is, or on host 0 shall be; nullopt: on this host, at a free port.
  std::optional<net::Address> rdzv_endpoint;
  std::string rdzv_id;  // the job's uid; empty: drawn at random, on a single host
  // The job's secret. On a single host it is made (0600) where it is absent or not named; several
  // hosts need the same file.
  std::filesystem::path rdzv_key_file;
  bool tls = false;  // --rdzv_conf tls=true: all traffic of the workers under TLS
  // Somebody else coordinates (a pod of the operator): the environment names the rendezvous, the
  // job and the key; this agent only starts processes.
  bool coordinated = false;
  int worker_index = 0;  // with `coordinated`; else it is node_rank

  rendezvous::Settings rendezvous;            // its times; the numbers come from the nodes
  Duration grace = std::chrono::seconds(30);  // from the signal to the kill
  Duration restart_delay = std::chrono::milliseconds(100);  // doubling up to restart_delay_limit
  Duration restart_delay_limit = std::chrono::seconds(10);
  int output_fd = 1;  // where the processes' lines go
  int error_fd = 2;
};

// "2" or "1:4", as torchrun's --nnodes. Throws Failure(kUsage).
void set_nodes(AgentOptions& options, const std::string& text);

// "tls=true", as torchrun's --rdzv_conf. Throws Failure(kUsage).
void set_rdzv_conf(AgentOptions& options, const std::string& text);

// Takes over a rendezvous that the environment names already, unless an endpoint is given. Throws
// Failure(kUsage) on options that do not go together.
void complete_options(AgentOptions& options, const Environment& environment);

// Runs until all processes have ended. 0 when all did well; else the exit code of the first failure
// that was permanent (1 to 127) or found no restart left; 143 or 130 after a signal. Throws Failure
// when it cannot begin.
int run_agent(const AgentOptions& options, const StopSignals& signals,
              const std::shared_ptr<Logger>& log);

}  // namespace tilewright::elastic
