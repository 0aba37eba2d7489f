// What Prometheus reads from the controller.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/request_counter.h"
#include "controller/manager/records.h"
#include "controller/queue/work_queue.h"

namespace tilewright::manager {

struct JobFigures {
  std::string namespace_name;
  std::string name;
  std::shared_ptr<const JobResults> results;
};

// Taken when Prometheus asks.
struct Figures {
  bool leading = false;
  std::size_t pods = 0;
  std::map<std::string, std::size_t> jobs_by_phase;
  std::vector<JobFigures> jobs;  // that have begun to run; gone ones are not told of any more
  std::size_t rendezvous_members = 0;
  queue::QueueFigures queue;
  std::map<kube::RequestCounter::Key, std::uint64_t> requests;
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  void observe_look(Duration duration);  // one look at a job, its requests included

  // All that there is to be collected, together with the figures. Serve it with an Exposer.
  std::shared_ptr<prometheus::Collectable> collectable(std::function<Figures()> figures);

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Histogram& look_seconds_;
};

}  // namespace tilewright::manager
