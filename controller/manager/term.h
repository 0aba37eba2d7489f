// A term of leadership: everything that may write, from the moment the lease is held to the moment
// it is not.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/manager/caches.h"
#include "controller/manager/metrics.h"
#include "controller/manager/options.h"
#include "controller/manager/rendezvous_hub.h"
#include "controller/queue/work_queue.h"

namespace tilewright::manager {

class Term {
 public:
  // `options`, `client`, `caches` and `metrics` outlive it. Returns at once: its threads wait for
  // the caches, then open the rendezvous, publish it and look at every job.
  Term(const Options& options, kube::Client& client, const Caches& caches, Metrics& metrics,
       std::shared_ptr<const kube::WriteGuard> guard, std::shared_ptr<Logger> log);
  ~Term() { stop(); }
  Term(const Term&) = delete;
  Term& operator=(const Term&) = delete;

  // Ends the requests under way; returns when no write is. Once.
  void stop();

  // From any thread: the job deserves a look, soon.
  void changed(const std::string& key, Change change);
  queue::QueueFigures queue_figures() const { return queue_.figures(); }
  std::size_t rendezvous_members() const;

 private:
  void run();
  // Until it succeeds or the term ends.
  template <typename Step>
  bool insist(const char* what, Step step);
  // Where workers find the rendezvous, as new pods are told from then on.
  std::optional<Error> publish();
  kube::ApiResult<std::string> published_address();
  std::string rendezvous() const;
  void serve(const class JobKeys& keys);
  void work(class Reconciler& reconciler);
  void add_all();

  const Options& options_;
  kube::Client& client_;
  const Caches& caches_;
  Metrics& metrics_;
  const std::shared_ptr<const kube::WriteGuard> guard_;
  const std::shared_ptr<Logger> log_;
  queue::WorkQueue queue_;
  net::WakeUp stop_;
  mutable std::mutex mutex_;            // of what follows, which others ask for
  std::unique_ptr<RendezvousHub> hub_;  // from the moment it listens
  std::string rendezvous_;              // from the moment it is published
  std::thread thread_;                  // last: it uses all of the above
};

}  // namespace tilewright::manager
