// The controller as a whole: caches that are always warm, an election, and a term of leadership for
// as long as it is won.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/kube/leader_election.h"
#include "controller/manager/caches.h"
#include "controller/manager/http_server.h"
#include "controller/manager/metrics.h"
#include "controller/manager/options.h"
#include "controller/manager/term.h"

namespace tilewright::manager {

class Manager {
 public:
  // `client` outlives it. Nothing runs yet.
  Manager(kube::Client& client, Options options, std::shared_ptr<Logger> log);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Errors carry kUsage: an address that cannot be listened on.
  Status start();
  // Gives the lease up, so that another replica takes over at once. May be called twice.
  void stop();

 private:
  // nullptr while another replica leads.
  std::shared_ptr<Term> current_term() const;
  void changed(const std::string& key, Change change);
  void begin_term(std::shared_ptr<const kube::WriteGuard> guard);
  void end_term();
  Figures figures() const;
  std::optional<std::string> unhealthy() const;
  std::optional<std::string> unready() const;

  kube::Client& client_;
  const Options options_;
  const std::shared_ptr<Logger> log_;
  Metrics metrics_;
  mutable std::mutex mutex_;  // of term_
  std::shared_ptr<Term> term_;
  Caches caches_;
  std::optional<kube::LeaderElection> election_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace tilewright::manager
