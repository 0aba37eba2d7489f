// The rendezvous that an agent provides to its processes: key file, job UID, worker index and, on
// one host, the server.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/process/signals.h"
#include "common/rendezvous/server.h"
#include "worker/elastic/agent_options.h"

namespace tilewright::elastic {

class HostRendezvous {
 public:
  // Serves the rendezvous or, without a node rank, gets the index of this host from the host that
  // serves it. Throws Failure: kUsage (the key file cannot be read, the address is in use),
  // kPeerLost (no host serves within rdzv_timeout), the signal's code.
  HostRendezvous(const AgentOptions& options, const StopSignals& signals,
                 std::shared_ptr<Logger> log);
  ~HostRendezvous();  // deletes a temporary key file

  // What the processes need: TILEWRIGHT_RENDEZVOUS, TILEWRIGHT_JOB_UID, TILEWRIGHT_JOB_KEY_FILE.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  const std::string& job_uid() const { return uid_; }
  int worker_index() const { return worker_index_; }  // of this host's processes
  bool serves() const { return server_ != nullptr; }
  const net::Address& address() const { return endpoint_; }
  const std::filesystem::path& key_file() const { return key_file_; }
  // The processes of another host have exited without finishing.
  void host_exited(int worker_index);
  // A process of this host has exited without finishing.
  void process_exited(int local_rank);
  // A process will be restarted; the next membership epoch waits for it up to `timeout`.
  void expect_restart(Duration timeout);
  // Waits up to `timeout` for the processes of other hosts to finish.
  void wait_for_other_hosts(Duration timeout, const net::WakeUp& cancel);
  // Ends the job for all members, with `message` as the reason. On a host that does not serve, only
  // a permanent failure, and only if the others do not continue without this host (see
  // report_failure()).
  void fail(const std::string& message, bool is_permanent = true);

 private:
  void prepare_key_file(const AgentOptions& options);
  // Starts the server if this host is the one that serves.
  void serve(const AgentOptions& options, const StopSignals& signals, const net::Wait& wait);
  // Whether the endpoint is an address of this host. Waits until its name resolves.
  bool endpoint_is_here(const StopSignals& signals, const net::Wait& wait) const;
  int index_of_this_host(const AgentOptions& options, const StopSignals& signals,
                         const net::Wait& wait) const;
  [[noreturn]] void fail_start(const StopSignals& signals, const Error& error) const;
  net::Address address_for_own_processes(const AgentOptions& options, const net::Wait& wait) const;

  std::shared_ptr<Logger> log_;
  net::Address endpoint_;
  std::map<std::string, std::string> environment_;
  std::filesystem::path key_file_;       // empty: the environment names the rendezvous
  std::filesystem::path temporary_dir_;  // holds the key file if none is named
  std::string uid_;
  bool tls_ = false;
  int worker_index_ = 0;
  int min_world_ = 0;
  int world_ = 0;
  std::unique_ptr<rendezvous::Server> server_;  // on the host that serves
};

// Returns when no member of the job is left, or at the end of the Wait.
void wait_until_left(rendezvous::Server& server, const std::string& uid, const net::Wait& wait);

}  // namespace tilewright::elastic
