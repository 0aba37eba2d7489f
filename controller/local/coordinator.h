// The rendezvous server of a local job: its address, the expected membership, and the progress
// that the workers report.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "controller/policy/observe_rendezvous.h"
#include "controller/policy/plan.h"

namespace tilewright::local {

class Coordinator {
 public:
  virtual ~Coordinator() = default;
  virtual std::string endpoint() const = 0;  // host:port
  // Sets the expected membership and accepts workers. Can be called again after close().
  virtual Status expect(const policy::Membership& membership) = 0;
  // Stops accepting workers and disconnects those that are members.
  virtual void close() = 0;
  // Reports that the worker's process has exited; see rendezvous::Server::worker_exited().
  virtual void worker_exited(int index) = 0;
  // Returns nullopt before the first expect() and after close().
  virtual std::optional<policy::RendezvousView> progress() const = 0;
  virtual int changes_fd() const = 0;  // readable after a change
  virtual void take_changes() = 0;     // makes changes_fd() unreadable until the next change
};

struct CoordinatorOptions {
  std::string job_uid;
  std::int64_t global_batch = 1;
  bool tls = false;
  rendezvous::Epoch min_epoch = 0;  // the last epoch in the job's status; new epochs are higher
  std::int64_t last_checkpoint_step = -1;  // in the job's status; -1: none
  bool exact = true;
  std::string isa = {};                            // status.instructionSet
  std::optional<Duration> heartbeat_timeout = {};  // nullopt: that of rendezvous::Settings
};

// Serves on the loopback interface, on a free port. Error: kUsage, no address to listen on.
Result<std::unique_ptr<Coordinator>> serve_rendezvous(CoordinatorOptions options,
                                                      net::SecretKey key,
                                                      std::shared_ptr<Logger> log);

}  // namespace tilewright::local
