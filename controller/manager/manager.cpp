#include "controller/manager/manager.h"

#include <fmt/format.h>

#include <utility>

namespace tilewright::manager {
namespace {

// Every request has a deadline of half a minute, and a look makes a handful of them in a row.
constexpr std::chrono::minutes kStuck{10};

}  // namespace

Manager::Manager(kube::Client& client, Options options, std::shared_ptr<Logger> log)
    : client_(client),
      options_(std::move(options)),
      log_(std::move(log)),
      caches_(
          client, options_.jobs_namespace,
          [this](const std::string& key, Change change) { changed(key, change); }, log_) {}

Manager::~Manager() { stop(); }

Status Manager::start() {
  auto http = HttpServer::start(options_.metrics_listen, options_.health_listen,
                                {metrics_.collectable([this] { return figures(); }),
                                 [this] { return unhealthy(); }, [this] { return unready(); }});
  if (!http) return http.error();
  http_ = std::move(http).value();
  caches_.start();
  if (!options_.elect_leader) {
    begin_term(std::make_shared<const kube::WriteGuard>(MonotonicTime::max()));
    return {};
  }
  kube::ElectionOptions election;
  election.namespace_name = options_.own_namespace;
  election.lease_name = options_.lease_name;
  election.elector = options_.elector;
  election.elector.identity = options_.identity;
  election_.emplace(
      client_, election,
      kube::ElectionCallbacks{
          [this](std::shared_ptr<const kube::WriteGuard> guard) { begin_term(std::move(guard)); },
          [this] { end_term(); },
          [this](const std::string& holder) { log_->info("the leader is {}", holder); }},
      log_);
  election_->start();
  return {};
}

void Manager::stop() {
  if (election_) election_->stop();
  end_term();
  caches_.stop();
}

std::shared_ptr<Term> Manager::current_term() const {
  const std::lock_guard lock(mutex_);
  return term_;
}

void Manager::changed(const std::string& key, Change change) {
  if (const auto term = current_term()) term->changed(key, change);
}

void Manager::begin_term(std::shared_ptr<const kube::WriteGuard> guard) {
  const std::lock_guard lock(mutex_);
  term_ = std::make_shared<Term>(options_, client_, caches_, metrics_, std::move(guard), log_);
}

void Manager::end_term() {
  std::shared_ptr<Term> term;
  {
    const std::lock_guard lock(mutex_);
    term = std::exchange(term_, nullptr);
  }
  // Somebody in changed() or figures() may hold it for a moment longer, but writes nothing.
  if (term) term->stop();
}

Figures Manager::figures() const {
  Figures figures;
  figures.pods = caches_.number_of_pods();
  figures.jobs_by_phase = caches_.jobs_by_phase();
  for (const Caches::Job& job : caches_.jobs_with_results()) {
    figures.jobs.push_back({job->namespace_name, job->name, job->value.results});
  }
  figures.requests = client_.counter().counts();
  const auto term = current_term();
  if (!term) return figures;
  figures.leading = true;
  figures.queue = term->queue_figures();
  figures.rendezvous_members = term->rendezvous_members();
  return figures;
}

std::optional<std::string> Manager::unhealthy() const {
  const auto term = current_term();
  if (term && term->queue_figures().longest_working > kStuck) {
    return fmt::format("a look at a job has not ended for over {}", to_words(kStuck));
  }
  return std::nullopt;
}

std::optional<std::string> Manager::unready() const {
  // Whether this replica leads or stands by: both are doing what they should.
  if (caches_.synced()) return std::nullopt;
  return "the caches are not filled yet";
}

}  // namespace tilewright::manager
