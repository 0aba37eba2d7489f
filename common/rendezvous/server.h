// The coordinator: serves the membership of one job or of many on one port, in one thread.
//
// Its owner (tilewright up, the controller, the agent of the first host) adds jobs, waits for
// changes() and looks at snapshots. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/wait.h"
#include "common/rendezvous/membership.h"
#include "common/rendezvous/snapshot.h"

namespace tilewright::rendezvous {

struct JobSpec {
  std::string uid;  // is_job_uid()
  net::SecretKey key;
  Settings settings;
  Epoch floor = 0;  // as of make_state()
  // Its members speak TLS; the others are refused with a sentence. One port serves both kinds.
  bool tls = false;
};

class Server {
 public:
  struct Options {
    net::Address listen{"127.0.0.1", 0};
    // For the proof and the first join of a connection.
    Duration patience_with_strangers = std::chrono::seconds(5);
    std::size_t max_connections = 8192;
    std::size_t max_strangers = 256;  // connections that have not proved themselves yet
  };

  // Errors carry kUsage: an address that cannot be listened on.
  static Result<std::unique_ptr<Server>> start(const Options& options, std::shared_ptr<Logger> log);
  // Closes all connections; members that train go on training.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const net::Address& address() const;

  // Errors carry kUsage: a uid that is none or is served already, settings out of bounds.
  Status add_job(JobSpec spec);
  // Its members' connections are closed; with a sentence they are refused and end.
  void remove_job(const std::string& uid, const std::optional<std::string>& sentence = {});
  // How many processes the job may and should have from now on, and how long an epoch may wait for
  // them. Errors carry kUsage: bounds out of bounds; nothing is changed then.
  Status expect(const std::string& uid, const Expect& expect);

  std::optional<Snapshot> snapshot(const std::string& uid) const;  // nullopt: no such job

  // Rung when something has changed, a heartbeat included.
  const net::WakeUp& changes() const;
  // Which jobs these are, since the last call; silences changes().
  std::vector<std::string> take_changed();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::rendezvous
