// The rendezvous server of all jobs, which the leader runs on one port.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "common/base/log.h"
#include "common/rendezvous/server.h"
#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::controller {

// Thread-safe.
class RendezvousHub {
 public:
  // Called from the hub's thread with the key of a job whose membership changed or that received a
  // heartbeat (about one per second).
  enum class ChangeKind { kMembership, kHeartbeat };
  using Changed = std::function<void(const std::string& key, ChangeKind kind)>;

  // Fails with kUsage if the listen address is not available.
  static Result<std::unique_ptr<RendezvousHub>> start(const net::Address& listen, Changed changed,
                                                      std::shared_ptr<Logger> log);
  // Stops the server. Running workers continue to train.
  ~RendezvousHub();
  RendezvousHub(const RendezvousHub&) = delete;
  RendezvousHub& operator=(const RendezvousHub&) = delete;

  const net::Address& address() const { return server_->address(); }

  struct Job {
    std::string key;  // for Changed
    net::SecretKey secret;
    std::int64_t global_batch = 1;
    rendezvous::Epoch last_epoch = 0;  // last known epoch of an earlier coordinator
    bool tls = false;
    std::int64_t last_checkpoint_step = -1;  // as reported to an earlier coordinator; -1: none
    bool exact = true;
    std::string isa = {};                            // status.instructionSet
    std::optional<Duration> heartbeat_timeout = {};  // nullopt: that of rendezvous::Settings
  };
  // Sets the expected membership of a job. If the job is not open yet, opens it with the result of
  // `make_job`.
  Status expect(const std::string& uid, const policy::Membership& membership,
                const std::function<Job()>& make_job);
  // Reports the workers that have ended, each once, so that no epoch waits for them to reconnect.
  void report_ended(const std::string& uid, const std::vector<policy::Worker>& workers);
  // Closes the job and disconnects its members.
  void close(const std::string& uid);
  // Returns std::nullopt if the job is not open. Marks silent members. `clock` is the monotonic
  // time at `now`.
  std::optional<policy::RendezvousView> view(const std::string& uid,
                                             const std::vector<policy::Worker>& workers,
                                             WallTime now,
                                             MonotonicTime clock = monotonic_now()) const;
  // Number of connected members of all jobs.
  std::size_t members() const;
  // The connections that the server has rejected, by reason.
  std::map<std::string, std::uint64_t> rejections() const { return server_->rejections(); }

 private:
  struct OpenJob {
    std::string key;
    std::int64_t global_batch = 1;
    Duration heartbeat_timeout{};
    MonotonicTime opened_at;
    policy::Membership sent;
    std::set<std::string> reported_ended;  // UIDs of workers
    // Last observed epoch, phase, number of members and number of losses.
    std::tuple<rendezvous::Epoch, rendezvous::Phase, std::size_t, std::uint64_t> last_seen;
  };
  RendezvousHub(std::unique_ptr<rendezvous::Server> server, Changed changed);
  void watch_changes();
  void notify(const std::string& uid);

  const std::unique_ptr<rendezvous::Server> server_;
  const Changed changed_;
  mutable std::mutex mutex_;
  std::map<std::string, OpenJob> open_jobs_;  // by UID
  net::WakeUp stop_;
  std::thread thread_;
};

}  // namespace tilewright::controller
