// The coordinator: serves the membership of one or more jobs on one port, in one thread.
//
// Its owner (tilewright up, the controller, the agent of the first host) adds jobs, waits for
// changes() and reads snapshots. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/wait.h"
#include "common/rendezvous/limits.h"
#include "common/rendezvous/membership.h"
#include "common/rendezvous/snapshot.h"

namespace tilewright::rendezvous {

struct JobSpec {
  std::string uid;  // is_job_uid()
  net::SecretKey key;
  Settings settings = {};
  Epoch last_epoch = 0;  // see Stored
  // Whether its members must use TLS; others are refused with a reason. One port serves both.
  bool tls = false;
  std::int64_t last_checkpoint_step = -1;  // see Stored
  std::string isa = {};                    // see Stored
  int first_index = 1;  // of the agents that ask for a worker index, in the order of their requests
  // The most hosts that the job has. While fewer are known, requests for an index wait until
  // recovery_timeout after the start: this may be a restarted coordinator, to which a host that has
  // an index has not reported yet. The hosts below first_index are known.
  int hosts = 0;
  bool ends_with_an_agent = false;  // a permanent failure that an agent reports ends the job
};

class Server {
 public:
  struct Options {
    net::Address listen{"127.0.0.1", 0};
    // From accept to the proof of the secret, which takes a few round trips.
    Duration proof_timeout = std::chrono::seconds(3);
    // From accept to the first join, including the proof.
    Duration join_timeout = std::chrono::seconds(5);
    Limits limits = {};
    Clock* clock = &system_clock();  // for all deadlines
  };

  // Knows `jobs` before it accepts the first connection: members that wait for a server at a known
  // address may connect at once. Errors carry kUsage: cannot listen on the address; as add_job().
  static Result<std::unique_ptr<Server>> start(const Options& options, std::shared_ptr<Logger> log,
                                               std::vector<JobSpec> jobs = {});
  // Closes all connections; members keep training.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const net::Address& address() const;

  // Errors carry kUsage: a bad or already registered uid, settings or last_epoch out of bounds.
  Status add_job(JobSpec spec);
  // Closes the connections of its members. With a reason, refuses the members first, so that they
  // exit instead of reconnecting.
  void remove_job(const std::string& uid, const std::optional<std::string>& reason = {});
  // Refuses its members, and all that join later, with the reason.
  void fail_job(const std::string& uid, const std::string& reason);
  // Changes the bounds and the expected number of processes, and how long an epoch waits for that
  // number. Errors carry kUsage (values out of bounds) and change nothing.
  Status expect(const std::string& uid, const Expect& expect);

  // Reports that the processes of a worker, or the one with the local rank, have exited, so that
  // their epoch does not wait for them to reconnect.
  void worker_exited(const std::string& uid, int worker_index, std::optional<int> local_rank = {});

  std::optional<Snapshot> snapshot(const std::string& uid) const;  // nullopt: no such job

  // The connections rejected so far, by reason (rejections.h).
  std::map<std::string, std::uint64_t> rejections() const;
  // What the connections of all jobs use now.
  Usage usage() const;

  // Signalled by every change, including heartbeats.
  const net::WakeUp& changes() const;
  // The jobs that changed since the last call; clears changes().
  std::vector<std::string> take_changed();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::rendezvous
