#include "controller/operator/metrics.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/version.h"

namespace tilewright::controller {
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

// The labels of a job and one additional label.
std::vector<ClientMetric::Label> labels_of(const JobMetrics& job, const char* name,
                                           std::string_view value) {
  const char* kind = job.kind == JobKind::kTrainJob ? "trainjob" : "pytorchjob";
  return {{"namespace", job.namespace_name}, {kind, job.name}, {name, std::string(value)}};
}

double number(std::uint64_t count) { return static_cast<double>(count); }

const char* name_of(JobKind kind) {
  return kind == JobKind::kTrainJob ? kTrainJobKind : kPyTorchJobKind;
}

MetricFamily last_failures_of(const std::map<JobKind, WallTime>& times) {
  MetricFamily failures =
      family("tilewright_controller_last_job_failure_timestamp_seconds",
             "Unix time of the last failure of an existing job by kind.", MetricType::Gauge);
  for (const auto& [kind, time] : times) {
    failures.metric.push_back(labelled({{"kind", name_of(kind)}}));
    failures.metric.back().gauge.value = in_seconds(time.time_since_epoch());
  }
  return failures;
}

// All causes are exported from the start, so that rate() sees the first restart.
MetricFamily restarts_of(const std::vector<JobMetrics>& jobs) {
  MetricFamily restarts =
      family("tilewright_job_restarts_total",
             "Restarts of the job's workers by cause, from its status. PyTorchJobs have the label "
             "pytorchjob.",
             MetricType::Counter);
  for (const JobMetrics& job : jobs) {
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

MetricFamily evaluation_of(const std::vector<JobMetrics>& jobs) {
  MetricFamily evaluation = family("tilewright_job_evaluation",
                                   "Result of the last evaluation of the job by metric, from "
                                   "its status.",
                                   MetricType::Gauge);
  for (const JobMetrics& job : jobs) {
    for (const auto& [metric, value] : job.results->evaluation) {
      evaluation.metric.push_back(labelled(labels_of(job, "metric", metric)));
      evaluation.metric.back().gauge.value = value;
    }
  }
  return evaluation;
}

MetricFamily rejections_of(const char* name, const char* help,
                           const std::map<std::string, std::uint64_t>& counts) {
  MetricFamily rejections = family(name, help, MetricType::Counter);
  for (const auto& [reason, count] : counts) {
    rejections.metric.push_back(labelled({{"reason", reason}}));
    rejections.metric.back().counter.value = number(count);
  }
  return rejections;
}

class SnapshotCollectable final : public prometheus::Collectable {
 public:
  SnapshotCollectable(std::shared_ptr<prometheus::Registry> registry,
                      std::function<MetricsSnapshot()> snapshot)
      : registry_(std::move(registry)), snapshot_(std::move(snapshot)) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families = registry_->Collect();
    const MetricsSnapshot snapshot = snapshot_();
    families.push_back(gauge("tilewright_controller_leading",
                             "1 if this replica is the leader and reconciles jobs, otherwise 0.",
                             snapshot.leading ? 1 : 0));
    families.push_back(
        gauge("tilewright_controller_pods", "Number of worker pods.", number(snapshot.pods)));
    families.push_back(
        gauge("tilewright_controller_rendezvous_members",
              "Number of worker processes that are connected to the rendezvous server.",
              number(snapshot.rendezvous_members)));
    families.push_back(rejections_of(
        "tilewright_controller_rendezvous_rejections_total",
        "Total number of connections that the rendezvous server has rejected by reason.",
        snapshot.rendezvous_rejections));
    if (snapshot.tcpstore) {
      families.push_back(gauge("tilewright_controller_tcpstore_connections",
                               "Number of connections to the TCPStores of PyTorchJobs.",
                               number(snapshot.tcpstore->connections)));
      families.push_back(rejections_of(
          "tilewright_controller_tcpstore_rejections_total",
          "Total number of connections that the TCPStore server has rejected by reason.",
          snapshot.tcpstore->rejections));
    }
    families.push_back(gauge("tilewright_controller_workqueue_depth",
                             "Number of jobs in the work queue.", number(snapshot.queue.depth)));
    families.push_back(gauge("tilewright_controller_workqueue_oldest_age_seconds",
                             "Seconds that the oldest job has been in the work queue.",
                             in_seconds(snapshot.queue.oldest_queued)));
    families.push_back(gauge("tilewright_controller_workqueue_in_progress",
                             "Number of jobs that are being reconciled.",
                             number(snapshot.queue.processing)));
    families.push_back(counter("tilewright_controller_workqueue_retries_total",
                               "Total number of reconciles that failed and were queued again.",
                               number(snapshot.queue.retries)));
    MetricFamily jobs = family("tilewright_controller_jobs", "Number of jobs by kind and phase.",
                               MetricType::Gauge);
    for (const auto& [kind, phases] : snapshot.jobs_by_phase) {
      for (const auto& [phase, count] : phases) {
        jobs.metric.push_back(labelled({{"kind", name_of(kind)}, {"phase", phase}}));
        jobs.metric.back().gauge.value = number(count);
      }
    }
    families.push_back(std::move(jobs));
    families.push_back(last_failures_of(snapshot.last_failures));
    families.push_back(restarts_of(snapshot.jobs));
    families.push_back(evaluation_of(snapshot.jobs));
    MetricFamily requests =
        family("tilewright_controller_api_requests_total",
               "Total number of requests to the API server by verb, resource and HTTP status code; "
               "code \"none\": no response.",
               MetricType::Counter);
    for (const auto& [key, count] : snapshot.requests) {
      requests.metric.push_back(
          labelled({{"verb", key.verb}, {"resource", key.resource}, {"code", key.code}}));
      requests.metric.back().counter.value = number(count);
    }
    families.push_back(std::move(requests));
    return families;
  }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<MetricsSnapshot()> snapshot_;
};

prometheus::Histogram& reconcile_histogram(prometheus::Registry& registry) {
  prometheus::BuildGauge()
      .Name("tilewright_build_info")
      .Help("Version of the program; the value is always 1.")
      .Register(registry)
      .Add({{"version", kVersion}})
      .Set(1);
  return prometheus::BuildHistogram()
      .Name("tilewright_controller_reconcile_duration_seconds")
      .Help("Duration of one reconcile of a job in seconds, including its API requests.")
      .Register(registry)
      .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10,
                                                       30});
}

prometheus::Counter& exception_counter(prometheus::Registry& registry) {
  return prometheus::BuildCounter()
      .Name("tilewright_controller_reconcile_exceptions_total")
      .Help("Total number of reconciles that a bug of the controller ended. See the log.")
      .Register(registry)
      .Add({});
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      reconcile_duration_(reconcile_histogram(*registry_)),
      exceptions_(exception_counter(*registry_)) {}

void Metrics::count_exception() { exceptions_.Increment(); }

void Metrics::observe_reconcile(Duration duration) {
  reconcile_duration_.Observe(in_seconds(duration));
}

std::shared_ptr<prometheus::Collectable> Metrics::collectable(
    std::function<MetricsSnapshot()> snapshot) {
  return std::make_shared<SnapshotCollectable>(registry_, std::move(snapshot));
}

}  // namespace tilewright::controller
