// What `tilewright-worker agent` runs, from torchrun's flags and the environment.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/launch/torchrun.h"
#include "common/net/address.h"
#include "common/net/secret.h"
#include "common/rendezvous/types.h"
#include "worker/elastic/process_logs.h"
#include "worker/elastic/session.h"

namespace tilewright::elastic {

// Which host serves the rendezvous.
enum class Serving {
  kByRank,     // the one with node rank 0
  kByAddress,  // the one that rdzv_endpoint names, once it resolves; a second agent on it joins
  kAlways,     // this one
  kNever,      // another one
};

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

struct AgentOptions {
  std::vector<std::string> command;  // the worker: its program (a path) and its arguments
  int nproc_per_node = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  // nullopt: 0 on the host that serves the rendezvous, which gives the others theirs.
  std::optional<int> node_rank;
  Serving serving = Serving::kByRank;
  int max_restarts = 3;  // of all processes of this host together
  // Address of the rendezvous; nullopt: this host, any free port.
  std::optional<net::Address> rdzv_endpoint;
  std::string rdzv_id;  // the job's UID; empty: one of this launch (kLaunchUidPrefix)
  // The job's secret. On a single host it is created (mode 0600) if it is missing or not named;
  // several hosts need a copy of the same file.
  std::filesystem::path rdzv_key_file;
  std::shared_ptr<const net::SecretKey> rdzv_key;  // the secret itself instead of a file
  bool tls = false;  // --rdzv_conf tls=true: all traffic of the workers under TLS
  // For the host that serves the rendezvous, and of the processes for a membership epoch.
  Duration rdzv_timeout = std::chrono::minutes(10);
  std::optional<std::string> local_addr;  // where other hosts connect to this one; nullopt: found
  std::optional<PortRange> ports;         // of the rendezvous and the processes; nullopt: any
  // In a pod of the operator: the environment names the rendezvous, the job and the key, and this
  // agent only starts processes.
  bool external_rendezvous = false;
  int worker_index = 0;         // with `external_rendezvous`
  std::string role = "worker";  // in front of each line of the processes
  LogOptions logs;
  // The agent stops when this descriptor reaches its end; -1: none.
  int control_fd = -1;
  // Sentences for the log: flags without effect, reasons for the number of processes.
  std::vector<std::string> notes;

  rendezvous::Settings rendezvous;  // timeouts; the world sizes come from the nodes
  // From the signal that stops the processes to the one that kills them; torchrun's default.
  Duration grace_period = std::chrono::seconds(30);
  Duration restart_delay = std::chrono::milliseconds(100);  // doubling up to restart_delay_limit
  Duration restart_delay_limit = std::chrono::seconds(10);
  int output_fd = 1;  // destination of the processes' lines
  int error_fd = 2;
};

// "2" or "1:4", as torchrun's --nnodes. Throws Failure(kUsage).
void set_nnodes(AgentOptions& options, const std::string& text);

// "tls=true,timeout=60": torchrun's --rdzv_conf with its keys and Tilewright's. A key that has no
// effect adds a note. Throws Failure(kUsage).
void set_rdzv_conf(AgentOptions& options, const std::string& text);

// "eth0": the address of the interface is that of this host. Throws Failure(kUsage).
void set_interface(AgentOptions& options, const std::string& name);

// "20000-20100". Throws Failure(kUsage).
void set_port_range(AgentOptions& options, const std::string& text);

// Everything that the flags of torchrun say. Flags without effect add notes. Throws Failure(kUsage)
// for values that the agent does not support: --nproc-per-node gpu, --rdzv-backend etcd.
void set_torchrun_options(AgentOptions& options, const launch::TorchrunOptions& flags);

// Uses the rendezvous that the environment names, whatever the flags say: in a pod the operator
// serves it. Throws Failure(kUsage) for options that exclude each other.
void complete_options(AgentOptions& options, const GetVariable& environment);

}  // namespace tilewright::elastic
