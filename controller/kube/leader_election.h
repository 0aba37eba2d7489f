// Takes part in the election of a leader by a Lease, in a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/kube/elector.h"
#include "controller/kube/write_guard.h"

namespace tilewright::kube {

struct ElectionOptions {
  std::string namespace_name;
  std::string lease_name;
  ElectorSettings elector;
  Jitter jitter = random_jitter();
};

// Called from the election's thread. While they run the lease is not renewed, so they must be
// quick, except for `stopped`, after which nothing is held any more.
struct ElectionCallbacks {
  // A term has begun: every write of it passes this guard, which runs out by itself.
  std::function<void(std::shared_ptr<const WriteGuard> guard)> started;
  // The term is over. Its guard is closed already, unless stop() ends it: then it closes when this
  // returns, so that what waits can still be written. Returns when no write of it is under way.
  std::function<void()> stopped;
  std::function<void(const std::string& holder)> holder_changed;  // may be empty
};

class LeaderElection {
 public:
  // `client` must outlive it.
  LeaderElection(Client& client, ElectionOptions options, ElectionCallbacks callbacks,
                 std::shared_ptr<Logger> logger);
  ~LeaderElection();
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  void start();
  // Ends the term if there is one (guard, `stopped`), gives the lease up so that another takes over
  // at once, and joins the thread. May be called twice.
  void stop();

 private:
  void run();
  void perform(const Elector::Act& act);
  void write(const Elector::Act& act);
  void follow();  // begins or ends the term as the elector has it
  void end_term();
  void release();

  Client& client_;
  const ElectionOptions options_;
  const ElectionCallbacks callbacks_;
  const std::shared_ptr<Logger> logger_;
  const WriteGuard unfenced_ = WriteGuard::unfenced();  // the lease's own writes need no leave
  net::WakeUp stop_;
  Elector elector_;
  nlohmann::json lease_;               // as last seen; null: none
  std::shared_ptr<WriteGuard> guard_;  // of the present term; null: not leading
  std::string holder_;
  std::thread thread_;
};

}  // namespace tilewright::kube
