// The informers of the controller and what is looked up in them: jobs, their pods, nodes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/informer.h"
#include "controller/manager/records.h"

namespace tilewright::manager {

// Why a job deserves a look.
enum class Change {
  kJob,      // it is new, gone, or somebody wants something else of it
  kStatus,   // no more than its status was written
  kWorkers,  // its pods, or the nodes that they are on or may go to
};

// Thread-safe. They run on every replica, leading or not, so that a new leader starts warm.
class Caches {
 public:
  using Job = kube::Informer<JobRecord>::Item;
  using Pod = kube::Informer<PodRecord>::Item;

  // `namespace_name`: of the jobs that are looked after; empty: all. `changed` is called with the
  // key of a job that deserves a look, from the informers' threads.
  Caches(kube::Client& client, const std::string& namespace_name,
         std::function<void(const std::string& key, Change change)> changed,
         const std::shared_ptr<Logger>& logger);
  ~Caches() { stop(); }
  Caches(const Caches&) = delete;
  Caches& operator=(const Caches&) = delete;

  void start();
  void stop();
  bool synced() const;
  bool wait_synced(const net::Wait& wait) const;

  Job job(const std::string& key) const;  // nullptr: there is none
  std::vector<std::string> job_keys() const;
  std::vector<Pod> pods_of(const std::string& job_uid) const;
  // Whether the pod was in the cache, and went, a short while ago.
  bool has_gone(const std::string& pod_uid) const;
  // False for a node that does not report, or is not there any more; true for no name at all.
  bool node_ready(const std::string& name) const;
  // All of them, made anew when one changes.
  std::shared_ptr<const std::vector<reconcile::Node>> nodes() const;

  std::map<std::string, std::size_t> jobs_by_phase() const;
  std::vector<Job> jobs_with_results() const;
  std::size_t number_of_jobs() const { return jobs_.size(); }
  std::size_t number_of_pods() const { return pods_.size(); }

 private:
  void job_changed(const Job& job, Change change);
  void pod_changed(const Pod& before, const Pod& now);
  void note_gone(const std::string& pod_uid);  // with the mutex held
  void node_changed(const NodeRecord* before, const NodeRecord* now);

  const std::function<void(const std::string&, Change)> changed_;
  mutable std::mutex mutex_;
  std::map<std::string, std::map<std::string, Pod>> pods_by_job_;  // UID of the job, of the pod
  std::map<std::string, MonotonicTime> gone_;                      // by UID of the pod
  std::deque<std::string> gone_in_order_;                          // the oldest first
  mutable std::shared_ptr<const std::vector<reconcile::Node>> all_nodes_;  // null: to be made
  std::uint64_t node_changes_ = 0;
  kube::Informer<JobRecord> jobs_;
  kube::Informer<PodRecord> pods_;
  kube::Informer<NodeRecord> nodes_;
};

}  // namespace tilewright::manager
