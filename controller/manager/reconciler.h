// One look at a job: gather what is, reconcile, carry out the plan.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "controller/manager/applier.h"
#include "controller/manager/caches.h"
#include "controller/manager/job_memory.h"
#include "controller/queue/work_queue.h"

namespace tilewright::manager {

// Of one term of leadership. Thread-safe for different keys; the queue hands a key to one thread at
// a time.
class Reconciler {
 public:
  // All references outlive the object.
  Reconciler(kube::Client& client, const Caches& caches, RendezvousHub& hub, const JobKeys& keys,
             Applier& applier, queue::WorkQueue& queue, std::shared_ptr<Logger> log);

  // Looks at the job and asks the queue for the next look, if it is to come by itself.
  void look(const std::string& key, const net::Wait& wait);
  // What companions are known to exist is looked up again, in case somebody has deleted one.
  void distrust_companions() { ++distrust_; }

 private:
  JobMemory& memory_of(const std::string& key);
  void forget(const std::string& key);
  // Looks into pods that have a node and take long to start.
  void ask_for_troubles(const std::string& key, std::vector<reconcile::Worker>& workers,
                        JobMemory& memory, const net::Wait& wait);
  void gone(const std::string& key, JobMemory& memory);

  kube::Client& client_;
  const Caches& caches_;
  RendezvousHub& hub_;
  const JobKeys& keys_;
  Applier& applier_;
  queue::WorkQueue& queue_;
  const std::shared_ptr<Logger> log_;
  std::mutex mutex_;
  std::map<std::string, JobMemory> memories_;
  std::atomic<std::uint64_t> distrust_{0};
};

// Lays what was written last on the job as it was cached, where the cache does not show it yet.
void bring_up_to_date(nlohmann::json& cached, JobMemory& memory);

}  // namespace tilewright::manager
