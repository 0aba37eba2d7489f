// The operator: informer caches, leader election, HTTP endpoints, and a LeadershipSession while
// this replica is the leader.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/client/leader_election.h"
#include "controller/operator/caches.h"
#include "controller/operator/http_pages.h"
#include "controller/operator/leadership_session.h"
#include "controller/operator/metrics.h"
#include "controller/operator/options.h"

namespace tilewright::controller {

class Operator {
 public:
  // `client` must outlive the operator. Call start() to run it.
  Operator(kube::Client& client, Options options, std::shared_ptr<Logger> log);
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  // Fails with kUsage if a listen address is not available.
  Status start();
  // Releases the lease, so that another replica takes over at once. May be called twice.
  void stop();

 private:
  // nullptr while another replica leads.
  std::shared_ptr<LeadershipSession> current_session() const;
  void changed(const std::string& key, Change change);
  void begin_session(std::shared_ptr<const kube::WriteGuard> guard);
  void end_session();
  MetricsSnapshot snapshot() const;
  std::optional<std::string> unhealthy() const;
  std::optional<std::string> unready() const;

  kube::Client& client_;
  const Options options_;
  const std::shared_ptr<Logger> log_;
  Metrics metrics_;
  mutable std::mutex mutex_;  // protects session_
  std::shared_ptr<LeadershipSession> session_;
  Caches caches_;
  std::optional<kube::LeaderElection> election_;
  std::unique_ptr<net::HttpServer> metrics_server_, health_server_;  // last: they use the others
};

}  // namespace tilewright::controller
