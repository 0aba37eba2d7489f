// A leadership session: the components that write to the cluster. It exists while this replica
// holds the lease.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/operator/caches.h"
#include "controller/operator/endpoint.h"
#include "controller/operator/metrics.h"
#include "controller/operator/options.h"
#include "controller/operator/rendezvous_hub.h"
#include "controller/operator/store_hub.h"
#include "controller/workqueue/work_queue.h"

namespace tilewright::controller {

class LeadershipSession {
 public:
  // The references must outlive the session. Returns at once: the session's thread waits for the
  // caches, starts the rendezvous, publishes its address and reconciles all jobs.
  LeadershipSession(const Options& options, kube::Client& client, const Caches& caches,
                    Metrics& metrics, std::shared_ptr<const kube::WriteGuard> guard,
                    std::shared_ptr<Logger> log);
  ~LeadershipSession() { stop(); }
  LeadershipSession(const LeadershipSession&) = delete;
  LeadershipSession& operator=(const LeadershipSession&) = delete;

  // Cancels the requests in flight and returns when no write is in flight. Call it once.
  void stop();

  // Queues the job. May be called from any thread.
  void changed(const std::string& key, Change change);
  // False until the session reconciles jobs: it waits for the caches, the master key or the address
  // of the rendezvous.
  bool serving() const { return serving_; }
  workqueue::QueueStats queue_metrics() const { return queue_.stats(); }
  std::size_t rendezvous_members() const;
  std::map<std::string, std::uint64_t> rendezvous_rejections() const;
  std::optional<TcpStoreMetrics> tcpstore_metrics() const;

 private:
  void run();
  // Repeats `step` until it succeeds (true) or the session ends (false). Logs each new error, and a
  // lasting one every minute.
  template <typename Step>
  bool retry_until_success(const char* what, Step step);
  // Starts to listen for workers and, for PyTorchJobs, for torchrun's agents.
  std::optional<Error> listen();
  // Publishes the addresses of the rendezvous and of the stores, which new pods get from then on.
  std::optional<Error> publish();
  kube::ApiResult<ServiceAddresses> published_addresses();
  std::string rendezvous() const;
  void serve(const class JobKeys& keys);
  void work(class Reconciler& reconciler);
  void enqueue_all();

  const Options& options_;
  kube::Client& client_;
  const Caches& caches_;
  Metrics& metrics_;
  const std::shared_ptr<const kube::WriteGuard> guard_;
  const std::shared_ptr<Logger> log_;
  workqueue::WorkQueue queue_;
  net::WakeUp stop_;
  std::atomic<bool> serving_ = false;
  mutable std::mutex mutex_;            // protects the following members
  std::unique_ptr<RendezvousHub> hub_;  // null until it listens
  std::unique_ptr<StoreHub> stores_;    // null until it listens, or without PyTorchJobs
  std::string rendezvous_;              // empty until it is published
  std::thread thread_;                  // last member: it uses the others
};

}  // namespace tilewright::controller
