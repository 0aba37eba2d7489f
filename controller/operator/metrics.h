// The Prometheus metrics of the controller.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/client/request_counter.h"
#include "controller/operator/records.h"
#include "controller/workqueue/work_queue.h"

namespace tilewright::controller {

struct JobMetrics {
  std::string namespace_name;
  std::string name;
  std::shared_ptr<const JobResults> results;
  JobKind kind = JobKind::kTrainJob;
};

// Of the server of the TCPStores of PyTorchJobs.
struct TcpStoreMetrics {
  std::size_t connections = 0;
  std::map<std::string, std::uint64_t> rejections;  // by reason
};

// The values at the time of a scrape.
struct MetricsSnapshot {
  bool leading = false;
  std::size_t pods = 0;
  std::map<JobKind, std::map<std::string, std::size_t>> jobs_by_phase;
  std::map<JobKind, WallTime> last_failures;  // of existing jobs
  std::vector<JobMetrics> jobs;               // existing jobs that have started at least once
  std::size_t rendezvous_members = 0;
  std::map<std::string, std::uint64_t> rendezvous_rejections;  // by reason
  std::optional<TcpStoreMetrics> tcpstore;                     // nullopt: not served
  workqueue::QueueStats queue;
  std::map<kube::RequestCounter::Key, std::uint64_t> requests;
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  void observe_reconcile(Duration duration);  // one reconcile of a job, including its requests
  void count_exception();                     // that ended a reconcile

  // All metrics, with the values of `snapshot`, which is called at each scrape.
  std::shared_ptr<prometheus::Collectable> collectable(std::function<MetricsSnapshot()> snapshot);

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Histogram& reconcile_duration_;
  prometheus::Counter& exceptions_;
};

}  // namespace tilewright::controller
