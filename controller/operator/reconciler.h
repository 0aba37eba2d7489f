// Reconciles one job: observes its state, computes a plan and applies it.
//
// A reconcile is a boundary: an exception, whatever the job holds, ends this reconcile only.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "controller/operator/applier.h"
#include "controller/operator/caches.h"
#include "controller/operator/job_expectations.h"
#include "controller/operator/job_objects.h"
#include "controller/operator/metrics.h"
#include "controller/operator/recorder.h"
#include "controller/operator/store_hub.h"
#include "controller/workqueue/work_queue.h"

namespace tilewright::controller {

// One object per leadership session. Thread-safe for different keys; the work queue ensures that
// only one thread processes a key.
class Reconciler {
 public:
  struct Dependencies {  // must outlive the Reconciler
    kube::Client& client;
    const Caches& caches;
    RendezvousHub& hub;
    const JobKeys& keys;
    Applier& applier;
    Recorder& recorder;
    workqueue::WorkQueue& queue;
    Metrics& metrics;
    StoreHub* stores = nullptr;    // null: the agents of PyTorchJobs use their worker 0
    std::string gang_scheduler{};  // Options::gang_scheduler
  };
  Reconciler(const Dependencies& deps, std::shared_ptr<Logger> log)
      : deps_(deps), log_(std::move(log)) {}

  // Reconciles the job. Queues it again if the plan sets requeue_after or was not applied
  // completely. Does not throw.
  void reconcile(const std::string& key, const net::Wait& wait);
  // Makes the next reconcile of each job check its owned resources, which a user may have deleted.
  void invalidate_owned_resources() { ++invalidation_round_; }

 private:
  // The job, filled in by read_caches() and observe().
  struct Observation {
    JobId id;
    policy::Observed observed;
    DecodedJob decoded;             // its job and traits are moved to `observed`
    std::vector<Caches::Pod> pods;  // as cached; observed.workers has the leader's own writes too
    WallTime now;
  };
  void reconcile_job(const std::string& key, const net::Wait& wait);
  // Discards the expectations that belong to a deleted job, or to an earlier invalidation round.
  void begin(const std::string& key, const Caches::Job& cached, JobExpectations& expectations);
  Observation read_caches(const std::string& key, const kube::Cached<JobRecord>& cached,
                          JobExpectations& expectations) const;
  // Tells the servers of the leader which pods may connect and which have ended.
  void publish_pods(const Observation& observation);
  // Reads what the caches do not have: the rendezvous, and the events of pods that do not start.
  void observe(const std::string& key, const net::Wait& wait, JobExpectations& expectations,
               Observation& observation);
  std::unique_ptr<JobObjects> make_objects(const Observation& observation);
  // `accepted_again`: the API server accepted the requests after it had rejected the last ones.
  void requeue(const std::string& key, const policy::Plan& plan, const ApplyResult& outcome,
               bool accepted_again);
  // Reports the exception in the log, a metric, an event and the next status write.
  void handle_exception(const std::string& key, const std::string& what);
  JobExpectations& expectations_of(const std::string& key);
  void forget(const std::string& key);
  // Reads the events of scheduled pods that are slow to start.
  void read_start_failures(const std::string& key, policy::Observed& observed,
                           JobExpectations& expectations, const net::Wait& wait);
  void handle_deleted(const std::string& key, JobExpectations& expectations);

  const Dependencies deps_;
  const std::shared_ptr<Logger> log_;
  std::mutex mutex_;
  std::map<std::string, JobExpectations> expectations_;
  std::atomic<std::uint64_t> invalidation_round_{0};
  std::atomic<bool> drops_state_{false};  // see pytorch_job_objects()
};

// Replaces the status of the cached job with the last written one while the cache is behind.
void overlay_written_status(nlohmann::json& cached, JobExpectations& expectations);

}  // namespace tilewright::controller
