#include "controller/operator/leadership_session.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "controller/operator/applier.h"
#include "controller/operator/job_keys.h"
#include "controller/operator/reconciler.h"
#include "controller/operator/recorder.h"

namespace tilewright::controller {
namespace {

using std::chrono::seconds;

constexpr seconds kRequestDeadline{30};
constexpr seconds kRetryInterval{1};
constexpr seconds kRelogInterval{60};
constexpr seconds kTakeDeadline{60};
// Workers send heartbeats every second; one reconcile handles several of them.
constexpr seconds kHeartbeatReconcileDelay{1};

// Pod events come in bursts; one reconcile handles those within this time.
constexpr std::chrono::milliseconds kBatchDelay{150};

// The maximum delay bounds the recovery time after a problem whose end triggers no event.
workqueue::Backoff make_backoff() {
  return workqueue::Backoff({std::chrono::milliseconds(20), seconds(30)});
}

}  // namespace

LeadershipSession::LeadershipSession(const Options& options, kube::Client& client,
                                     const Caches& caches, Metrics& metrics,
                                     std::shared_ptr<const kube::WriteGuard> guard,
                                     std::shared_ptr<Logger> log)
    : options_(options),
      client_(client),
      caches_(caches),
      metrics_(metrics),
      guard_(std::move(guard)),
      log_(std::move(log)),
      queue_(make_backoff()),
      thread_([this] { run(); }) {}

void LeadershipSession::stop() {
  stop_.signal();
  queue_.shut_down();
  if (thread_.joinable()) thread_.join();
}

std::size_t LeadershipSession::rendezvous_members() const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->members() : 0;
}

std::map<std::string, std::uint64_t> LeadershipSession::rendezvous_rejections() const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->rejections() : std::map<std::string, std::uint64_t>();
}

std::optional<TcpStoreMetrics> LeadershipSession::tcpstore_metrics() const {
  const std::lock_guard lock(mutex_);
  if (!stores_) return std::nullopt;
  return TcpStoreMetrics{stores_->connections(), stores_->rejections()};
}

void LeadershipSession::changed(const std::string& key, Change change) {
  switch (change) {
    case Change::kJob:
      return queue_.add(key);
    case Change::kStatus:
      return queue_.add_after(key, kBatchDelay);
    case Change::kWorkers:
      // High priority: updating a running job takes one request, starting a job about a dozen.
      return queue_.add_after(key, kBatchDelay, workqueue::Priority::kHigh);
  }
}

template <typename Step>
bool LeadershipSession::retry_until_success(const char* what, Step step) {
  std::string last_error;
  MonotonicTime logged;
  while (!stop_.signalled()) {
    const auto error = step();
    if (!error) return true;
    const MonotonicTime now = monotonic_now();
    if (error->message != last_error || now - logged >= kRelogInterval) {
      log_->error("{}: {}; retrying", what, error->message);
      last_error = error->message;
      logged = now;
    }
    net::sleep_until(net::within(kRetryInterval, &stop_));
  }
  return false;
}

void LeadershipSession::run() {
  if (!caches_.wait_synced({MonotonicTime::max(), &stop_})) return;

  std::optional<JobKeys> keys;
  const bool ready =
      retry_until_success("the master key",
                          [&]() -> std::optional<Error> {
                            auto loaded = JobKeys::load(client_, *guard_, options_.own_namespace,
                                                        options_.master_key_name,
                                                        net::within(kRequestDeadline, &stop_));
                            if (!loaded) return loaded.error().to_error();
                            keys.emplace(std::move(loaded).value());
                            return std::nullopt;
                          }) &&
      retry_until_success("the rendezvous", [this] { return listen(); }) &&
      retry_until_success("the address of the rendezvous", [this] { return publish(); });
  if (ready) serve(*keys);
}

std::optional<Error> LeadershipSession::listen() {
  auto hub = RendezvousHub::start(
      options_.rendezvous_listen,
      [this](const std::string& key, RendezvousHub::ChangeKind kind) {
        if (kind == RendezvousHub::ChangeKind::kMembership) {
          queue_.add(key, workqueue::Priority::kHigh);
        } else {
          queue_.add_after(key, kHeartbeatReconcileDelay);
        }
      },
      log_);
  if (!hub) return hub.error();
  std::unique_ptr<StoreHub> stores;
  if (options_.serves_tcpstore()) {
    auto started = StoreHub::start(options_.tcpstore_listen, log_);
    if (!started) return started.error();
    stores = std::move(started).value();
  }
  const std::lock_guard lock(mutex_);
  hub_ = std::move(hub).value();
  stores_ = std::move(stores);
  return std::nullopt;
}

std::optional<Error> LeadershipSession::publish() {
  const auto addresses = published_addresses();
  if (!addresses) return addresses.error().to_error();
  std::string rendezvous = net::to_string(addresses->rendezvous);
  std::string tcpstore = addresses->tcpstore ? net::to_string(*addresses->tcpstore) : "";
  const std::lock_guard lock(mutex_);
  if (rendezvous_ != rendezvous) {
    log_->info("rendezvous address for workers: {}", rendezvous);
    if (stores_ && tcpstore.empty()) {
      log_->warn(
          "the Service {} has no port named tcpstore: torchrun's agents of PyTorchJobs "
          "rendezvous through worker 0",
          options_.rendezvous_service);
    } else if (stores_) {
      log_->info("address of the TCPStores of PyTorchJobs: {}", tcpstore);
    }
  }
  rendezvous_ = std::move(rendezvous);
  if (stores_) stores_->set_address_for_pods(std::move(tcpstore));
  return std::nullopt;
}

std::string LeadershipSession::rendezvous() const {
  const std::lock_guard lock(mutex_);
  return rendezvous_;
}

kube::ApiResult<ServiceAddresses> LeadershipSession::published_addresses() {
  Leader own{hub_->address(), {}};
  if (stores_) own.tcpstore = stores_->address().port;
  std::optional<net::Address> tcpstore;
  if (stores_ && !options_.tcpstore_address.host.empty()) {
    tcpstore = options_.tcpstore_address;
    if (tcpstore->port == 0) tcpstore->port = *own.tcpstore;
  }
  if (!options_.rendezvous_address.host.empty()) {
    net::Address configured = options_.rendezvous_address;
    if (configured.port == 0) configured.port = own.rendezvous.port;
    return ServiceAddresses{configured, tcpstore};
  }
  own.rendezvous.host = options_.pod_address;
  auto addresses =
      publish_endpoint(client_, *guard_, {options_.own_namespace, options_.rendezvous_service}, own,
                       net::within(kRequestDeadline, &stop_));
  if (addresses && tcpstore) addresses->tcpstore = tcpstore;
  return addresses;
}

void LeadershipSession::serve(const JobKeys& keys) {
  serving_ = true;
  log_->info("started leading: {} jobs, {} pods", caches_.number_of_jobs(),
             caches_.number_of_pods());
  Recorder recorder(client_, guard_, options_.instance, log_);
  TaskPool pool(options_.parallel_requests);
  Applier applier(
      {client_, *guard_, *hub_, keys, recorder, pool, options_.metrics_namespaces,
       options_.gang_scheduler},
      [this] { return rendezvous(); }, log_);
  Reconciler reconciler({client_, caches_, *hub_, keys, applier, recorder, queue_, metrics_,
                         stores_.get(), options_.gang_scheduler},
                        log_);
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(options_.reconcilers));
  for (int i = 0; i < options_.reconcilers; ++i) {
    workers.emplace_back([this, &reconciler] { work(reconciler); });
  }
  enqueue_all();
  while (net::sleep_until(net::within(options_.resync_period, &stop_))) {
    // A user may have deleted the EndpointSlice or recreated the Service.
    retry_until_success("the address of the rendezvous", [this] { return publish(); });
    reconciler.invalidate_owned_resources();
    enqueue_all();
  }
  for (std::thread& worker : workers) worker.join();
}

void LeadershipSession::enqueue_all() {
  for (const std::string& key : caches_.job_keys()) queue_.add(key);
}

void LeadershipSession::work(Reconciler& reconciler) {
  while (true) {
    const auto taken = queue_.take(monotonic_now() + kTakeDeadline);
    if (std::holds_alternative<workqueue::WorkQueue::ShutDown>(taken)) return;
    const auto* key = std::get_if<std::string>(&taken);
    if (key == nullptr) continue;
    // The next leader reconciles the keys that are still queued when the session ends.
    if (!stop_.signalled()) {
      const MonotonicTime start = monotonic_now();
      reconciler.reconcile(*key, net::within(kRequestDeadline, &stop_));
      metrics_.observe_reconcile(monotonic_now() - start);
    }
    queue_.done(*key);
  }
}

}  // namespace tilewright::controller
