#include "worker/metrics/exposition.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <mutex>
#include <utility>

#include "common/base/version.h"
#include "common/contract/training_report.h"
#include "common/net/http_server.h"

namespace tilewright::metrics {
namespace {

// A metric and its value in a progress report.
struct MetricSpec {
  const char* name;
  const char* help;
  double (*value)(const rendezvous::Progress& progress);
};

// A value of the report's `metrics` map; 0 if it is missing.
double metric(const rendezvous::Progress& progress, const char* name) {
  const auto found = progress.metrics.find(name);
  return found == progress.metrics.end() ? 0 : found->second;
}

using rendezvous::Progress;
constexpr std::array<MetricSpec, 16> kGaugeSpecs{{
    {"tilewright_step", "Completed optimizer steps.",
     [](const Progress& p) { return static_cast<double>(p.step); }},
    {"tilewright_total_steps", "Optimizer steps of the whole training.",
     [](const Progress& p) { return static_cast<double>(p.total_steps); }},
    {"tilewright_data_epoch", "Completed epochs of the training data, with a fraction.",
     [](const Progress& p) { return p.epoch_of_data; }},
    {"tilewright_loss", "Mean loss over the global batch of the last step.",
     [](const Progress& p) { return p.loss; }},
    {"tilewright_learning_rate", "Learning rate of the last step.",
     [](const Progress& p) { return p.learning_rate; }},
    {"tilewright_examples_per_second", "Training examples per second of all workers.",
     [](const Progress& p) { return p.examples_per_second; }},
    {"tilewright_tokens_per_second", "Training tokens per second of all workers, without padding.",
     [](const Progress& p) { return p.tokens_per_second; }},
    {"tilewright_flops_per_second",
     "Floating-point operations per second of all workers, without padding.",
     [](const Progress& p) { return 1e9 * metric(p, training_report::kGflops); }},
    {"tilewright_peak_flops_per_second",
     "Measured peak floating-point operations per second of the CPUs of all workers.",
     [](const Progress& p) { return 1e9 * metric(p, training_report::kPeakGflops); }},
    {"tilewright_eta_seconds", "Estimated seconds until the last step.",
     [](const Progress& p) { return metric(p, training_report::kEtaSeconds); }},
    {"tilewright_last_checkpoint_step", "Step of the last checkpoint; -1 if there is none.",
     [](const Progress& p) { return static_cast<double>(p.last_checkpoint_step); }},
    {"tilewright_step_compute_seconds",
     "Seconds of this process's forward and backward passes in the last step.",
     [](const Progress& p) { return metric(p, training_report::kComputeSeconds); }},
    {"tilewright_step_exchange_seconds",
     "Seconds in which this process exchanged its gradient, mean of the last 20 steps.",
     [](const Progress& p) { return metric(p, training_report::kExchangeSeconds); }},
    {"tilewright_step_hidden_exchange_seconds",
     "Seconds of the exchange that the backward pass hid, mean of the last 20 steps.",
     [](const Progress& p) { return metric(p, training_report::kHiddenExchangeSeconds); }},
    {"tilewright_shards",
     "Virtual shards that this process computes; 0 in a training that is not exact.",
     [](const Progress& p) { return metric(p, training_report::kShards); }},
    {"tilewright_slow_workers", "Processes of the job that stay slower than the others.",
     [](const Progress& p) { return static_cast<double>(p.slow_workers.size()); }},
}};
constexpr std::array<MetricSpec, 4> kCounterSpecs{{
    {"tilewright_failed_checkpoints_total", "Total number of checkpoints that were not written.",
     [](const Progress& p) { return metric(p, training_report::kFailedCheckpoints); }},
    {"tilewright_checkpoint_wait_seconds_total",
     "Total seconds for which checkpoints waited until earlier ones were written.",
     [](const Progress& p) { return metric(p, training_report::kCheckpointWaitSeconds); }},
    {"tilewright_recoveries_total",
     "Total number of losses of workers after which the others continued from memory.",
     [](const Progress& p) { return metric(p, training_report::kRecoveries); }},
    {"tilewright_lost_steps_total",
     "Total number of optimizer steps computed again after losses of workers.",
     [](const Progress& p) { return metric(p, training_report::kStepsLost); }},
}};

prometheus::Labels labels_of(const Identity& identity) {
  return {{"trainjob", identity.trainjob},
          {"worker", std::to_string(identity.worker)},
          {"process", std::to_string(identity.process)}};
}

}  // namespace

class Exposition::Impl {
 public:
  explicit Impl(const Identity& identity)
      : labels_(labels_of(identity)),
        registry_(std::make_shared<prometheus::Registry>()),
        evaluation_(prometheus::BuildGauge()
                        .Name("tilewright_evaluation")
                        .Help("Result of the last evaluation by metric.")
                        .Labels(labels_)
                        .Register(*registry_)),
        phase_(prometheus::BuildGauge()
                   .Name("tilewright_phase")
                   .Help("1 for the current phase of the worker, which is in the phase label.")
                   .Labels(labels_)
                   .Register(*registry_)),
        rank_(gauge("tilewright_rank", "Rank of this process in the current membership epoch.")),
        world_(
            gauge("tilewright_world_size", "Number of processes in the current membership epoch.")),
        epoch_(
            gauge("tilewright_membership_epoch", "Current membership epoch; 0 before the first.")),
        membership_changes_(
            counter("tilewright_membership_changes_total",
                    "Total number of membership epochs that this process entered after its first "
                    "one.")) {
    for (std::size_t i = 0; i < kGaugeSpecs.size(); ++i) {
      gauges_[i] = &gauge(kGaugeSpecs[i].name, kGaugeSpecs[i].help);
    }
    for (std::size_t i = 0; i < kCounterSpecs.size(); ++i) {
      counters_[i] = &counter(kCounterSpecs[i].name, kCounterSpecs[i].help);
    }
    prometheus::BuildGauge()
        .Name("tilewright_build_info")
        .Help("Version of the program; the value is always 1.")
        .Labels(labels_)
        .Register(*registry_)
        .Add({{"version", kVersion}})
        .Set(1);
  }

  Status serve(const net::Address& address) {
    net::HttpServer::Handlers pages;
    pages["/metrics"] = [registry = registry_] {
      return net::HttpResponse{200, net::kPrometheusText,
                               prometheus::TextSerializer().Serialize(registry->Collect())};
    };
    auto server = net::HttpServer::start(address, std::move(pages));
    if (!server) return server.error();
    server_ = std::move(server).value();
    return {};
  }

  std::uint16_t port() const { return server_->port(); }

  void begin_epoch(const EpochMembership& membership) {
    const std::lock_guard lock(mutex_);
    if (epoch_.Value() > 0) membership_changes_.Increment();
    epoch_.Set(static_cast<double>(membership.epoch));
    rank_.Set(membership.rank);
    world_.Set(membership.world);
  }

  void set(const Progress& progress) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < kGaugeSpecs.size(); ++i) {
      gauges_[i]->Set(kGaugeSpecs[i].value(progress));
    }
    for (std::size_t i = 0; i < kCounterSpecs.size(); ++i) {
      // Counters never decrease: Increment() ignores a negative difference.
      counters_[i]->Increment(kCounterSpecs[i].value(progress) - counters_[i]->Value());
    }
    for (const auto& [name, value] : progress.metrics) {
      const auto result = training_report::evaluation_result(name);
      if (result) evaluation_.Add({{"metric", std::string(*result)}}).Set(value);
    }
    if (progress.phase == last_phase_ || progress.phase.empty()) return;
    if (current_phase_ != nullptr) phase_.Remove(current_phase_);
    current_phase_ = &phase_.Add({{"phase", progress.phase}});
    current_phase_->Set(1);
    last_phase_ = progress.phase;
  }

 private:
  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(*registry_)
        .Add({});
  }

  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(*registry_)
        .Add({});
  }

  const prometheus::Labels labels_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Gauge>& evaluation_;
  prometheus::Family<prometheus::Gauge>& phase_;
  prometheus::Gauge &rank_, &world_, &epoch_;
  prometheus::Counter& membership_changes_;
  std::array<prometheus::Gauge*, kGaugeSpecs.size()> gauges_{};
  std::array<prometheus::Counter*, kCounterSpecs.size()> counters_{};
  std::mutex mutex_;
  prometheus::Gauge* current_phase_ = nullptr;
  std::string last_phase_;
  std::unique_ptr<net::HttpServer> server_;  // last member: it must be destroyed first
};

Result<std::unique_ptr<Exposition>> Exposition::serve(const net::Address& address,
                                                      const Identity& identity) {
  auto impl = std::make_unique<Impl>(identity);
  if (Status served = impl->serve(address); !served) {
    return Error{ExitCode::kUsage,
                 fmt::format("cannot serve metrics at {}; expected a free address of this machine "
                             "({})",
                             net::to_string(address), served.error().message)};
  }
  return std::unique_ptr<Exposition>(new Exposition(std::move(impl)));
}

Exposition::Exposition(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exposition::~Exposition() = default;
std::uint16_t Exposition::port() const { return impl_->port(); }
void Exposition::begin_epoch(const EpochMembership& membership) { impl_->begin_epoch(membership); }
void Exposition::set(const rendezvous::Progress& progress) { impl_->set(progress); }

}  // namespace tilewright::metrics
