#include "controller/manager/term.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "controller/manager/applier.h"
#include "controller/manager/endpoint.h"
#include "controller/manager/job_keys.h"
#include "controller/manager/reconciler.h"
#include "controller/manager/recorder.h"

namespace tilewright::manager {
namespace {

using std::chrono::seconds;

constexpr seconds kRequestDeadline{30};
constexpr seconds kBetweenTries{1};
constexpr seconds kTakeDeadline{60};
// Heartbeats of a job's workers come every second; one look may serve several.
constexpr seconds kHeartbeatLook{1};

// Events of a job's pods come in bursts: one look for those of this time.
constexpr std::chrono::milliseconds kGather{150};

// A job recovers within half a minute of its obstacle's going, where no event tells of that.
queue::Backoff make_backoff() {
  return queue::Backoff({std::chrono::milliseconds(20), seconds(30)});
}

}  // namespace

Term::Term(const Options& options, kube::Client& client, const Caches& caches, Metrics& metrics,
           std::shared_ptr<const kube::WriteGuard> guard, std::shared_ptr<Logger> log)
    : options_(options),
      client_(client),
      caches_(caches),
      metrics_(metrics),
      guard_(std::move(guard)),
      log_(std::move(log)),
      queue_(make_backoff()),
      thread_([this] { run(); }) {}

void Term::stop() {
  stop_.signal();
  queue_.shut_down();
  if (thread_.joinable()) thread_.join();
}

std::size_t Term::rendezvous_members() const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->members() : 0;
}

void Term::changed(const std::string& key, Change change) {
  switch (change) {
    case Change::kJob:
      return queue_.add(key);
    case Change::kStatus:
      return queue_.add_after(key, kGather);
    case Change::kWorkers:
      // To tell of a job that runs takes a request, and goes before jobs that are to begin: those
      // take a dozen.
      return queue_.add_after(key, kGather, queue::Urgency::kUrgent);
  }
}

template <typename Step>
bool Term::insist(const char* what, Step step) {
  std::string complaint;
  while (!stop_.signalled()) {
    const auto error = step();
    if (!error) return true;
    if (std::exchange(complaint, error->message) != error->message) {
      log_->error("{}: {}; trying again", what, error->message);
    }
    net::wait_ready(-1, 0, net::within(kBetweenTries, &stop_));
  }
  return false;
}

void Term::run() {
  if (!caches_.wait_synced({MonotonicTime::max(), &stop_})) return;

  std::optional<JobKeys> keys;
  const bool ready = insist("the master key",
                            [&]() -> std::optional<Error> {
                              auto loaded = JobKeys::load(client_, *guard_, options_.own_namespace,
                                                          options_.master_key_name,
                                                          net::within(kRequestDeadline, &stop_));
                              if (!loaded) return loaded.error().to_error();
                              keys.emplace(std::move(loaded).value());
                              return std::nullopt;
                            }) &&
                     insist("the rendezvous",
                            [&]() -> std::optional<Error> {
                              auto hub = RendezvousHub::start(
                                  options_.rendezvous_listen,
                                  [this](const std::string& key, RendezvousHub::News news) {
                                    if (news == RendezvousHub::News::kMembership) {
                                      queue_.add(key, queue::Urgency::kUrgent);
                                    } else {
                                      queue_.add_after(key, kHeartbeatLook);
                                    }
                                  },
                                  log_);
                              if (!hub) return hub.error();
                              const std::lock_guard lock(mutex_);
                              hub_ = std::move(hub).value();
                              return std::nullopt;
                            }) &&
                     insist("the address of the rendezvous", [this] { return publish(); });
  if (ready) serve(*keys);
}

std::optional<Error> Term::publish() {
  auto address = published_address();
  if (!address) return address.error().to_error();
  const std::lock_guard lock(mutex_);
  if (rendezvous_ != *address) log_->info("workers find the rendezvous at {}", *address);
  rendezvous_ = *std::move(address);
  return std::nullopt;
}

std::string Term::rendezvous() const {
  const std::lock_guard lock(mutex_);
  return rendezvous_;
}

kube::ApiResult<std::string> Term::published_address() {
  net::Address own = hub_->address();
  if (!options_.rendezvous_address.host.empty()) {
    net::Address told = options_.rendezvous_address;
    if (told.port == 0) told.port = own.port;
    return net::to_string(told);
  }
  own.host = options_.pod_address;
  const auto address =
      publish_endpoint(client_, *guard_, {options_.own_namespace, options_.rendezvous_service}, own,
                       net::within(kRequestDeadline, &stop_));
  if (!address) return address.error();
  return net::to_string(*address);
}

void Term::serve(const JobKeys& keys) {
  log_->info("leading {} jobs and {} pods", caches_.number_of_jobs(), caches_.number_of_pods());
  Recorder recorder(client_, guard_, options_.instance, log_);
  TaskPool pool(options_.parallel_requests);
  Applier applier(
      {client_, *guard_, *hub_, keys, recorder, pool}, [this] { return rendezvous(); }, log_);
  Reconciler reconciler(client_, caches_, *hub_, keys, applier, queue_, log_);
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(options_.reconcilers));
  for (int i = 0; i < options_.reconcilers; ++i) {
    workers.emplace_back([this, &reconciler] { work(reconciler); });
  }
  add_all();
  while (net::wait_ready(-1, 0, net::within(options_.resync_period, &stop_)) ==
         net::Ready::kTimedOut) {
    // Somebody may have deleted its EndpointSlice, or made its Service anew.
    insist("the address of the rendezvous", [this] { return publish(); });
    reconciler.distrust_companions();
    add_all();
  }
  for (std::thread& worker : workers) worker.join();
}

void Term::add_all() {
  for (const std::string& key : caches_.job_keys()) queue_.add(key);
}

void Term::work(Reconciler& reconciler) {
  while (true) {
    const auto taken = queue_.take(monotonic_now() + kTakeDeadline);
    if (std::holds_alternative<queue::WorkQueue::ShutDown>(taken)) return;
    const auto* key = std::get_if<std::string>(&taken);
    if (key == nullptr) continue;
    // What was queued when the term ended is for the next leader.
    if (!stop_.signalled()) {
      const MonotonicTime start = monotonic_now();
      reconciler.look(*key, net::within(kRequestDeadline, &stop_));
      metrics_.observe_look(monotonic_now() - start);
    }
    queue_.done(*key);
  }
}

}  // namespace tilewright::manager
