// Leader election with a Lease: runs the Elector in its own thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/client/elector.h"
#include "controller/client/write_guard.h"

namespace tilewright::kube {

struct ElectionOptions {
  std::string namespace_name;
  std::string lease_name;
  ElectorSettings elector;
  Jitter jitter = random_jitter();
};

// Called from the election's thread. The lease is not renewed while they run, so all except
// `stopped` must return quickly.
struct ElectionCallbacks {
  // A leadership session begins. All its writes must use this guard, which expires unless the lease
  // is renewed.
  std::function<void(std::shared_ptr<const WriteGuard> guard)> started;
  // The session ends. Its guard is revoked already, except after stop(): then the guard is revoked
  // when this function returns, so that pending writes can complete. Must return only when no write
  // of the session is in flight.
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
  // Ends the session if there is one (calls `stopped`), releases the lease so that another replica
  // takes over at once, and joins the thread. May be called twice.
  void stop();

 private:
  void run();
  void perform(const Elector::Action& action);
  void write(const Elector::Action& action);
  void update_leadership();  // begins or ends the session to match the elector
  void end_session();
  void release();

  Client& client_;
  const ElectionOptions options_;
  const ElectionCallbacks callbacks_;
  const std::shared_ptr<Logger> logger_;
  const WriteGuard unfenced_ = WriteGuard::unfenced();  // for writes of the Lease itself
  net::WakeUp stop_;
  Elector elector_;
  nlohmann::json lease_;               // as last observed; null: does not exist
  std::shared_ptr<WriteGuard> guard_;  // of the current session; null: not leading
  std::string holder_;
  std::thread thread_;
};

}  // namespace tilewright::kube
