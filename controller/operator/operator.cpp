#include "controller/operator/operator.h"

#include <fmt/format.h>

#include <utility>

namespace tilewright::controller {
namespace {

// Well above the normal maximum: a reconcile sends a few sequential requests of at most 30 s each.
constexpr std::chrono::minutes kStuck{10};

Error prefixed(const char* what, const Error& error) {
  return {error.code, fmt::format("{}: {}", what, error.message)};
}

}  // namespace

Operator::Operator(kube::Client& client, Options options, std::shared_ptr<Logger> log)
    : client_(client),
      options_(std::move(options)),
      log_(std::move(log)),
      caches_(
          client, options_.jobs_namespace,
          [this](const std::string& key, Change change) { changed(key, change); }, log_,
          options_.pytorch_jobs) {}

Operator::~Operator() { stop(); }

Status Operator::start() {
  auto health = net::HttpServer::start(
      options_.health_listen,
      health_pages([this] { return unhealthy(); }, [this] { return unready(); }));
  if (!health) return prefixed("/healthz and /readyz", health.error());
  health_server_ = std::move(health).value();
  auto metrics = net::HttpServer::start(
      options_.metrics_listen, metrics_pages(metrics_.collectable([this] { return snapshot(); })),
      kMetricsLimits);
  if (!metrics) return prefixed("/metrics", metrics.error());
  metrics_server_ = std::move(metrics).value();
  caches_.start();
  if (!options_.elect_leader) {
    begin_session(std::make_shared<const kube::WriteGuard>(MonotonicTime::max()));
    return {};
  }
  kube::ElectionOptions election;
  election.namespace_name = options_.own_namespace;
  election.lease_name = options_.lease_name;
  election.elector = options_.elector;
  election.elector.identity = options_.identity;
  election_.emplace(client_, election,
                    kube::ElectionCallbacks{[this](std::shared_ptr<const kube::WriteGuard> guard) {
                                              begin_session(std::move(guard));
                                            },
                                            [this] { end_session(); },
                                            [this](const std::string& holder) {
                                              log_->info("the leader is {}", holder);
                                            }},
                    log_);
  election_->start();
  return {};
}

void Operator::stop() {
  if (election_) election_->stop();
  end_session();
  caches_.stop();
}

std::shared_ptr<LeadershipSession> Operator::current_session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

void Operator::changed(const std::string& key, Change change) {
  if (const auto session = current_session()) session->changed(key, change);
}

void Operator::begin_session(std::shared_ptr<const kube::WriteGuard> guard) {
  const std::lock_guard lock(mutex_);
  session_ = std::make_shared<LeadershipSession>(options_, client_, caches_, metrics_,
                                                 std::move(guard), log_);
}

void Operator::end_session() {
  std::shared_ptr<LeadershipSession> session;
  {
    const std::lock_guard lock(mutex_);
    session = std::exchange(session_, nullptr);
  }
  // changed() or snapshot() may still hold a reference for a moment; neither writes to the cluster.
  if (session) session->stop();
}

MetricsSnapshot Operator::snapshot() const {
  MetricsSnapshot snapshot;
  snapshot.pods = caches_.number_of_pods();
  for (const JobKind kind : {JobKind::kTrainJob, JobKind::kPyTorchJob}) {
    if (kind == JobKind::kPyTorchJob && !caches_.has_pytorch_jobs()) continue;
    snapshot.jobs_by_phase[kind] = caches_.jobs_by_phase(kind);
    if (const auto time = caches_.last_failure(kind)) snapshot.last_failures.emplace(kind, *time);
    for (const Caches::Job& job : caches_.jobs_with_results(kind)) {
      snapshot.jobs.push_back({job->namespace_name, job->name, job->value.results, kind});
    }
  }
  snapshot.requests = client_.counter().counts();
  const auto session = current_session();
  if (!session) return snapshot;
  snapshot.leading = session->serving();
  snapshot.queue = session->queue_metrics();
  snapshot.rendezvous_members = session->rendezvous_members();
  snapshot.rendezvous_rejections = session->rendezvous_rejections();
  snapshot.tcpstore = session->tcpstore_metrics();
  return snapshot;
}

std::optional<std::string> Operator::unhealthy() const {
  const auto session = current_session();
  if (session && session->queue_metrics().longest_processing > kStuck) {
    return fmt::format("a reconcile has been running for more than {}", format_duration(kStuck));
  }
  return std::nullopt;
}

std::optional<std::string> Operator::unready() const {
  // Leader and standby replicas are both ready.
  if (caches_.synced()) return std::nullopt;
  return "the caches are not filled yet";
}

}  // namespace tilewright::controller
