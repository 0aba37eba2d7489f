// The rendezvous as an agent provides it to its processes: the key's file, the job's uid, and on
// the first host the server.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "common/rendezvous/server.h"
#include "worker/elastic/agent.h"

namespace tilewright::elastic {

class HostRendezvous {
 public:
  // Throws Failure(kUsage): no secret where one is needed, an address in use.
  HostRendezvous(const AgentOptions& options, std::shared_ptr<Logger> log);
  ~HostRendezvous();  // removes a key file that it made for itself

  // What the processes need: TILEWRIGHT_RENDEZVOUS, TILEWRIGHT_JOB_UID, TILEWRIGHT_JOB_KEY_FILE.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // A process is about to be started again: an epoch may wait for it.
  void expect_restart(Duration patience);
  // The processes of this host are done: waits for those of other hosts, as long as `limit`.
  void await_others(Duration limit, const net::WakeUp& cancel);
  // The job has failed: all that wait or train are sent away with the sentence.
  void fail(const std::string& sentence);

 private:
  void provide_key(const AgentOptions& options);

  std::map<std::string, std::string> environment_;
  std::filesystem::path key_file_;
  std::filesystem::path own_folder_;  // of a key that nobody named
  std::string uid_;
  int min_world_ = 0;
  int world_ = 0;
  std::unique_ptr<rendezvous::Server> server_;  // on the first host
};

}  // namespace tilewright::elastic
