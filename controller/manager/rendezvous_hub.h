// The rendezvous of all jobs, served by the leader on one port.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include "common/base/log.h"
#include "common/rendezvous/server.h"
#include "controller/reconcile/observed.h"
#include "controller/reconcile/plan.h"

namespace tilewright::manager {

// Thread-safe.
class RendezvousHub {
 public:
  // Called from the hub's thread with the key of a job of which there is news: of its membership,
  // or only a heartbeat's, which come every second or so.
  enum class News { kMembership, kHeartbeat };
  using Changed = std::function<void(const std::string& key, News news)>;

  // Errors carry kUsage: an address that cannot be listened on.
  static Result<std::unique_ptr<RendezvousHub>> start(const net::Address& listen, Changed changed,
                                                      std::shared_ptr<Logger> log);
  // Workers that train go on training.
  ~RendezvousHub();
  RendezvousHub(const RendezvousHub&) = delete;
  RendezvousHub& operator=(const RendezvousHub&) = delete;

  const net::Address& address() const { return server_->address(); }

  struct Job {
    std::string key;  // for Changed
    net::SecretKey secret;
    std::int64_t global_batch = 1;
    rendezvous::Epoch floor =
        0;  // the last epoch that an earlier coordinator is known to have made
    bool tls = false;
  };
  // Opens the job to its members where it is not open yet (`make` is called only then), and tells
  // how many are expected.
  Status expect(const std::string& uid, const reconcile::Membership& membership,
                const std::function<Job()>& make);
  // The job is over: members are sent away.
  void close(const std::string& uid);
  // Nothing where the job is not open. Silent members are marked; `clock` is now, too.
  std::optional<reconcile::Progress> progress(const std::string& uid,
                                              const std::vector<reconcile::Worker>& workers,
                                              WallTime now,
                                              MonotonicTime clock = monotonic_now()) const;
  // Connected members of all jobs.
  std::size_t members() const;

 private:
  struct Open {
    std::string key;
    std::int64_t global_batch = 1;
    Duration heartbeat_timeout{};
    MonotonicTime since;
    reconcile::Membership told;
    // Of the membership as last seen: epoch, phase, members, losses.
    std::tuple<rendezvous::Epoch, rendezvous::Phase, std::size_t, std::uint64_t> seen;
  };
  RendezvousHub(std::unique_ptr<rendezvous::Server> server, Changed changed);
  void listen();
  void tell(const std::string& uid);

  const std::unique_ptr<rendezvous::Server> server_;
  const Changed changed_;
  mutable std::mutex mutex_;
  std::map<std::string, Open> open_;  // by UID
  net::WakeUp stop_;
  std::thread thread_;
};

}  // namespace tilewright::manager
