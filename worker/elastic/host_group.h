// Starts the agent on every host of a hostfile and ends all when one ends: what mpirun does for
// MPI, over the system's ssh. This process serves the rendezvous; it need not be one of the hosts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/process/signals.h"
#include "worker/elastic/agent_options.h"
#include "worker/elastic/hostfile.h"

namespace tilewright::elastic {

// The first line of an agent that a host group has started, before anything else on its standard
// output: "tilewright-agent started VERSION".
std::string started_line(const std::string& version);

struct HostGroupOptions {
  std::vector<Host> hosts;             // from this_host_first()
  std::filesystem::path ssh;           // the ssh client
  std::filesystem::path program;       // tilewright-worker, at the same path on all hosts
  std::string version;                 // of this program; the hosts have the same
  std::vector<std::string> flags;      // of the agents, besides those of the rendezvous
  std::vector<std::string> variables;  // NAME=VALUE, which the agents set (host_variables.h)
  AgentOptions agent;                  // with the command, the number of processes and the bounds
};

// This host first, then the others in the order of the list. A name that does not resolve within 30
// s for all hosts names another host. Throws Failure with the signal's code.
std::vector<Host> this_host_first(std::vector<Host> hosts, const StopSignals& signals);

// Runs until the agents of all hosts have ended. Returns 0 if all succeeded; otherwise the exit
// code of the first agent that failed, 144 for a host that cannot be reached or was lost while
// fewer than min_nodes remain, 143 or 130 after a signal. Logs one line for each host that cannot
// be reached. Throws Failure if the rendezvous cannot be served or its address is not found within
// 30 s, and with the signal's code before the agents start.
int run_host_group(HostGroupOptions options, const StopSignals& signals,
                   const std::shared_ptr<Logger>& log);

// Runs `agent --check` on every host and prints one line for each on `output_fd`. Returns 0 if all
// hosts can train together, else kUnsupported.
int check_hosts(const HostGroupOptions& options, const StopSignals& signals, int output_fd);

}  // namespace tilewright::elastic
