// The rendezvous that an agent provides to its processes: key file, job UID and, on the first host,
// the server.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "common/rendezvous/server.h"
#include "worker/elastic/agent.h"

namespace tilewright::elastic {

class HostRendezvous {
 public:
  // Throws Failure(kUsage): the key file cannot be read, or the address is in use.
  HostRendezvous(const AgentOptions& options, std::shared_ptr<Logger> log);
  ~HostRendezvous();  // deletes a temporary key file

  // What the processes need: TILEWRIGHT_RENDEZVOUS, TILEWRIGHT_JOB_UID, TILEWRIGHT_JOB_KEY_FILE.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // A process of this host has exited without finishing.
  void process_exited(int local_rank);
  // A process will be restarted; the next membership epoch waits for it up to `timeout`.
  void expect_restart(Duration timeout);
  // Waits up to `timeout` for the processes of other hosts to finish.
  void wait_for_other_hosts(Duration timeout, const net::WakeUp& cancel);
  // Ends the job for all members, with `sentence` as the reason.
  void fail(const std::string& sentence);

 private:
  void prepare_key_file(const AgentOptions& options);

  std::map<std::string, std::string> environment_;
  std::filesystem::path key_file_;
  std::filesystem::path temporary_dir_;  // holds the key file if none is named
  std::string uid_;
  int worker_index_ = 0;  // of this host's processes
  int min_world_ = 0;
  int world_ = 0;
  std::unique_ptr<rendezvous::Server> server_;  // on the first host
};

}  // namespace tilewright::elastic
