// The informers for TrainJobs, PyTorchJobs, their pods and nodes, with lookups in their caches.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/client/informer.h"
#include "controller/operator/records.h"

namespace tilewright::controller {

// Why a job must be reconciled.
enum class Change {
  kJob,      // created, deleted, or its spec changed
  kStatus,   // only its status changed
  kWorkers,  // a pod of the job changed, or a node that its pods run on or could run on
};

// Thread-safe. The informers run on every replica, so that a new leader starts with filled caches.
// PyTorchJobs are cached only if they are enabled. They are not part of synced(): where their CRD
// is not installed, TrainJobs still run, and a PyTorchJob is reconciled when the cache shows it.
class Caches {
 public:
  using Job = kube::Informer<JobRecord>::Item;
  using Pod = kube::Informer<PodRecord>::Item;

  // `namespace_name`: namespace of the jobs; empty: all namespaces. `changed` is called from the
  // informers' threads with the key of a job that must be reconciled.
  Caches(kube::Client& client, const std::string& namespace_name,
         std::function<void(const std::string& key, Change change)> changed,
         const std::shared_ptr<Logger>& logger, const PyTorchJobSelection& pytorch_jobs = {});
  ~Caches() { stop(); }
  Caches(const Caches&) = delete;
  Caches& operator=(const Caches&) = delete;

  void start();
  void stop();
  bool synced() const;
  bool wait_synced(const net::Wait& wait) const;

  Job job(const std::string& key) const;  // nullptr: not found, or run by another operator
  std::vector<std::string> job_keys() const;
  std::vector<Pod> pods_of(const JobId& job) const;
  // True if the pod was deleted from the cache within the last minutes.
  bool was_recently_deleted(const std::string& pod_uid) const;
  // kReady for an empty name, and for an unknown one until the nodes have been listed.
  policy::NodeState node_state(const std::string& name) const;
  // A snapshot of all nodes, rebuilt after a change.
  std::shared_ptr<const std::vector<policy::Node>> nodes() const;

  std::map<std::string, std::size_t> jobs_by_phase(JobKind kind = JobKind::kTrainJob) const;
  // Of the existing jobs; nullopt: none has failed.
  std::optional<WallTime> last_failure(JobKind kind = JobKind::kTrainJob) const;
  std::vector<Job> jobs_with_results(JobKind kind = JobKind::kTrainJob) const;
  bool has_pytorch_jobs() const { return pytorch_jobs_.has_value(); }
  std::size_t number_of_jobs() const { return jobs_.size(); }
  std::size_t number_of_pods() const { return pods_.size(); }

 private:
  kube::InformerHandlers<JobRecord> job_handlers(JobKind kind);
  // The jobs of the kind that this operator runs.
  std::vector<Job> all_jobs(JobKind kind) const;
  void pod_changed(const Pod& before, const Pod& now);
  void record_deleted_pod(const std::string& pod_uid);  // with the mutex held
  void node_changed(const NodeRecord* before, const NodeRecord* now);

  const std::function<void(const std::string&, Change)> changed_;
  mutable std::mutex mutex_;
  std::map<JobId, std::map<std::string, Pod>> pods_by_job_;             // then by UID of the pod
  std::map<std::string, MonotonicTime> deleted_pods_;                   // by UID of the pod
  std::deque<std::string> deleted_pods_order_;                          // oldest first
  mutable std::shared_ptr<const std::vector<policy::Node>> all_nodes_;  // null: must be rebuilt
  std::uint64_t node_changes_ = 0;
  kube::Informer<JobRecord> jobs_;
  std::optional<kube::Informer<JobRecord>> pytorch_jobs_;
  kube::Informer<PodRecord> pods_;
  kube::Informer<NodeRecord> nodes_;
};

}  // namespace tilewright::controller
