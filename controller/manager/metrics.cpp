#include "controller/manager/metrics.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "common/base/version.h"

namespace tilewright::manager {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric labelled(std::vector<ClientMetric::Label> labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  return metric;
}

MetricFamily family(const char* name, const char* help, MetricType type) {
  MetricFamily made;
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

MetricFamily gauge(const char* name, const char* help, double value) {
  MetricFamily made = family(name, help, MetricType::Gauge);
  made.metric.emplace_back().gauge.value = value;
  return made;
}

MetricFamily counter(const char* name, const char* help, double value) {
  MetricFamily made = family(name, help, MetricType::Counter);
  made.metric.emplace_back().counter.value = value;
  return made;
}

// One job's labels, and one more.
std::vector<ClientMetric::Label> labels_of(const JobFigures& job, const char* name,
                                           std::string_view value) {
  return {{"namespace", job.namespace_name}, {"trainjob", job.name}, {name, std::string(value)}};
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double number(std::uint64_t count) { return static_cast<double>(count); }

// With all causes from the start, so that a rate has the first restart, too.
MetricFamily restarts_of(const std::vector<JobFigures>& jobs) {
  MetricFamily restarts =
      family("tilewright_job_restarts_total",
             "Restarts of the job by cause, as its status counts them", MetricType::Counter);
  for (const JobFigures& job : jobs) {
    const api::RestartCounts& counts = job.results->restarts;
    for (const auto& [cause, count] :
         {std::pair{api::FailureCause::kProgram, counts.program},
          std::pair{api::FailureCause::kInfrastructure, counts.infrastructure},
          std::pair{api::FailureCause::kOutOfMemory, counts.out_of_memory}}) {
      restarts.metric.push_back(labelled(labels_of(job, "cause", api::to_string(cause))));
      restarts.metric.back().counter.value = static_cast<double>(count);
    }
  }
  return restarts;
}

MetricFamily evaluation_of(const std::vector<JobFigures>& jobs) {
  MetricFamily evaluation = family("tilewright_job_evaluation",
                                   "Result of the job's last evaluation, by metric, also when its "
                                   "workers have ended",
                                   MetricType::Gauge);
  for (const JobFigures& job : jobs) {
    for (const auto& [metric, value] : job.results->evaluation) {
      evaluation.metric.push_back(labelled(labels_of(job, "metric", metric)));
      evaluation.metric.back().gauge.value = value;
    }
  }
  return evaluation;
}

class Collected final : public prometheus::Collectable {
 public:
  Collected(std::shared_ptr<prometheus::Registry> registry, std::function<Figures()> figures)
      : registry_(std::move(registry)), figures_(std::move(figures)) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families = registry_->Collect();
    const Figures figures = figures_();
    families.push_back(gauge("tilewright_controller_leading",
                             "1 on the replica that holds the lease", figures.leading ? 1 : 0));
    families.push_back(
        gauge("tilewright_controller_pods", "Worker pods of all jobs", number(figures.pods)));
    families.push_back(gauge("tilewright_controller_rendezvous_members",
                             "Worker processes that are connected to the rendezvous",
                             number(figures.rendezvous_members)));
    families.push_back(gauge("tilewright_controller_queue_depth", "Jobs that wait for a look",
                             number(figures.queue.depth)));
    families.push_back(gauge("tilewright_controller_queue_oldest_seconds",
                             "How long the first of these has waited",
                             seconds(figures.queue.oldest_queued)));
    families.push_back(gauge("tilewright_controller_queue_working", "Jobs that are looked at now",
                             number(figures.queue.working)));
    families.push_back(counter("tilewright_controller_queue_retries_total",
                               "Looks asked for again after something failed",
                               number(figures.queue.retries)));
    MetricFamily jobs =
        family("tilewright_controller_jobs", "TrainJobs by phase", MetricType::Gauge);
    for (const auto& [phase, count] : figures.jobs_by_phase) {
      jobs.metric.push_back(labelled({{"phase", phase}}));
      jobs.metric.back().gauge.value = number(count);
    }
    families.push_back(std::move(jobs));
    families.push_back(restarts_of(figures.jobs));
    families.push_back(evaluation_of(figures.jobs));
    MetricFamily requests =
        family("tilewright_controller_api_requests_total",
               "Requests to the API server; code \"none\": not answered", MetricType::Counter);
    for (const auto& [key, count] : figures.requests) {
      requests.metric.push_back(
          labelled({{"verb", key.verb}, {"resource", key.resource}, {"code", key.code}}));
      requests.metric.back().counter.value = number(count);
    }
    families.push_back(std::move(requests));
    return families;
  }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<Figures()> figures_;
};

prometheus::Histogram& look_histogram(prometheus::Registry& registry) {
  prometheus::BuildGauge()
      .Name("tilewright_build_info")
      .Help("The program's version")
      .Register(registry)
      .Add({{"version", kVersion}})
      .Set(1);
  return prometheus::BuildHistogram()
      .Name("tilewright_controller_look_seconds")
      .Help("Seconds of one look at a job, its requests to the API server included")
      .Register(registry)
      .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10,
                                                       30});
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      look_seconds_(look_histogram(*registry_)) {}

void Metrics::observe_look(Duration duration) { look_seconds_.Observe(seconds(duration)); }

std::shared_ptr<prometheus::Collectable> Metrics::collectable(std::function<Figures()> figures) {
  return std::make_shared<Collected>(registry_, std::move(figures));
}

}  // namespace tilewright::manager
