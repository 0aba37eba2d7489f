#include "worker/metrics/exposition.h"

#include <fmt/format.h>
#include <poll.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <mutex>
#include <thread>

#include "common/base/version.h"
#include "common/contract/reported.h"
#include "common/net/socket.h"
#include "common/net/wait.h"

namespace tilewright::metrics {
namespace {

constexpr const char* kServerThreads = "2";  // one scraper, and one more that looks by hand

// A gauge and where its value stands in a progress report.
struct Figure {
  const char* name;
  const char* help;
  double (*value)(const rendezvous::Progress& progress);
};

// Of a report's free figures, by which a worker tells what only some have.
double metric(const rendezvous::Progress& progress, const char* name) {
  const auto found = progress.metrics.find(name);
  return found == progress.metrics.end() ? 0 : found->second;
}

using rendezvous::Progress;
constexpr std::array<Figure, 11> kFigures{{
    {"tilewright_step", "Optimizer steps done",
     [](const Progress& p) { return static_cast<double>(p.step); }},
    {"tilewright_total_steps", "Optimizer steps of the whole training",
     [](const Progress& p) { return static_cast<double>(p.total_steps); }},
    {"tilewright_data_epoch", "Passes over the training data, with the fraction of this one",
     [](const Progress& p) { return p.epoch_of_data; }},
    {"tilewright_loss", "Loss of the last step, a mean over the global batch",
     [](const Progress& p) { return p.loss; }},
    {"tilewright_learning_rate", "Learning rate of the last step",
     [](const Progress& p) { return p.learning_rate; }},
    {"tilewright_examples_per_second", "Examples trained per second, all workers together",
     [](const Progress& p) { return p.examples_per_second; }},
    {"tilewright_tokens_per_second", "Real tokens trained per second, all workers together",
     [](const Progress& p) { return p.tokens_per_second; }},
    {"tilewright_gflops", "Arithmetic on real tokens in GFLOP/s, all workers together",
     [](const Progress& p) { return metric(p, reported::kGflops); }},
    {"tilewright_ceiling_gflops", "What the CPUs of all workers could do in GFLOP/s",
     [](const Progress& p) { return metric(p, reported::kPeakGflops); }},
    {"tilewright_remaining_seconds", "Estimated time until the last step",
     [](const Progress& p) { return metric(p, reported::kEtaSeconds); }},
    {"tilewright_last_checkpoint_step", "Step of the newest checkpoint; -1 when there is none",
     [](const Progress& p) { return static_cast<double>(p.last_checkpoint_step); }},
}};

constexpr auto kKnock = std::chrono::milliseconds(20);

// Where this process reaches a listener of its own.
std::string own_door(const std::string& host) {
  if (host.empty() || host == "0.0.0.0") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

prometheus::Labels labels_of(const Identity& identity) {
  return {{"trainjob", identity.trainjob},
          {"worker", std::to_string(identity.worker)},
          {"process", std::to_string(identity.process)}};
}

}  // namespace

class Exposition::Impl {
 public:
  Impl(const net::Address& address, const Identity& identity)
      : door_(own_door(address.host)),
        labels_(labels_of(identity)),
        registry_(std::make_shared<prometheus::Registry>()),
        evaluation_(prometheus::BuildGauge()
                        .Name("tilewright_evaluation")
                        .Help("Result of the evaluation, by metric")
                        .Labels(labels_)
                        .Register(*registry_)),
        phase_(prometheus::BuildGauge()
                   .Name("tilewright_phase")
                   .Help("1 for what the worker is doing now")
                   .Labels(labels_)
                   .Register(*registry_)),
        rank_(gauge("tilewright_rank", "Rank in the membership epoch")),
        world_(gauge("tilewright_world_size", "Processes in the membership epoch")),
        epoch_(gauge("tilewright_membership_epoch", "Membership epoch; 0 before the first")),
        restarts_(prometheus::BuildCounter()
                      .Name("tilewright_restarts_total")
                      .Help("Times this process began again with other workers")
                      .Labels(labels_)
                      .Register(*registry_)
                      .Add({})) {
    for (std::size_t i = 0; i < kFigures.size(); ++i) {
      figures_[i] = &gauge(kFigures[i].name, kFigures[i].help);
    }
    prometheus::BuildGauge()
        .Name("tilewright_build_info")
        .Help("1, with the version as a label")
        .Labels(labels_)
        .Register(*registry_)
        .Add({{"version", kVersion}})
        .Set(1);
    exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", net::to_string(address), "num_threads", kServerThreads,
        // The server's end waits for its connections: an idle one may not hold up the worker's.
        "enable_keep_alive", "no", "linger_timeout_ms", "0", "request_timeout_ms", "200"});
    exposer_->RegisterCollectable(registry_);
  }

  // civetweb looks for its end every two seconds, or when somebody connects: so somebody does.
  ~Impl() {
    const net::Address self{door_, port()};
    net::WakeUp ended;
    std::thread end([&] {
      exposer_.reset();
      ended.signal();
    });
    do {
      (void)net::connect_to(self, net::within(kKnock));
    } while (net::wait_ready(ended.fd(), POLLIN, net::within(kKnock)) != net::Ready::kYes);
    end.join();
  }

  std::uint16_t port() const {
    return static_cast<std::uint16_t>(exposer_->GetListeningPorts().front());
  }

  void begin_epoch(const Place& place) {
    const std::lock_guard lock(mutex_);
    if (epoch_.Value() > 0) restarts_.Increment();
    epoch_.Set(static_cast<double>(place.epoch));
    rank_.Set(place.rank);
    world_.Set(place.world);
  }

  void set(const Progress& progress) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < kFigures.size(); ++i) {
      figures_[i]->Set(kFigures[i].value(progress));
    }
    for (const auto& [name, value] : progress.metrics) {
      if (!name.starts_with(reported::kEvaluationPrefix)) continue;
      const std::string result = name.substr(reported::kEvaluationPrefix.size());
      evaluation_.Add({{"metric", result}}).Set(value);
    }
    if (progress.phase == told_phase_ || progress.phase.empty()) return;
    if (current_phase_ != nullptr) phase_.Remove(current_phase_);
    current_phase_ = &phase_.Add({{"phase", progress.phase}});
    current_phase_->Set(1);
    told_phase_ = progress.phase;
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

  const std::string door_;
  const prometheus::Labels labels_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Gauge>& evaluation_;
  prometheus::Family<prometheus::Gauge>& phase_;
  prometheus::Gauge &rank_, &world_, &epoch_;
  prometheus::Counter& restarts_;
  std::array<prometheus::Gauge*, kFigures.size()> figures_{};
  std::mutex mutex_;
  prometheus::Gauge* current_phase_ = nullptr;
  std::string told_phase_;
  std::unique_ptr<prometheus::Exposer> exposer_;  // last: it goes first
};

Result<std::unique_ptr<Exposition>> Exposition::serve(const net::Address& address,
                                                      const Identity& identity) {
  try {
    return std::unique_ptr<Exposition>(new Exposition(std::make_unique<Impl>(address, identity)));
  } catch (const std::exception& problem) {
    return Error{ExitCode::kUsage,
                 fmt::format("cannot serve metrics at {}, expected a free address of this machine "
                             "({})",
                             net::to_string(address), problem.what())};
  }
}

Exposition::Exposition(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exposition::~Exposition() = default;
std::uint16_t Exposition::port() const { return impl_->port(); }
void Exposition::begin_epoch(const Place& place) { impl_->begin_epoch(place); }
void Exposition::set(const rendezvous::Progress& progress) { impl_->set(progress); }

}  // namespace tilewright::metrics
