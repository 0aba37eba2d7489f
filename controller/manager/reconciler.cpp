#include "controller/manager/reconciler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/reconcile/own_time.h"
#include "controller/reconcile/reconcile.h"

namespace tilewright::manager {
namespace {

// A pod starts within seconds; after this its events are asked why it does not.
constexpr std::chrono::seconds kTimeToStart{15};
constexpr std::chrono::seconds kAskAgain{30};
// Of so many pods at one look; what keeps one of a job from starting mostly keeps the others, too.
constexpr int kMostAsked = 4;
constexpr const char* kContainerCreating = "ContainerCreating";

// Somebody else's change comes with an event of its own, and a term that ends cuts its requests
// off: neither is a reason for concern.
bool is_news(kube::Problem problem) {
  switch (problem) {
    case kube::Problem::kConflict:
    case kube::Problem::kNotFound:
    case kube::Problem::kCancelled:
    case kube::Problem::kFenced:
      return false;
    default:
      return true;
  }
}

std::vector<reconcile::Worker> observe_pods(const Caches& caches, const std::string& job_uid,
                                            JobMemory& memory) {
  std::vector<reconcile::Worker> cached;
  for (const Caches::Pod& pod : caches.pods_of(job_uid)) cached.push_back(pod->value.worker);
  // One can have come and gone while its creation was still being answered.
  std::erase_if(memory.created, [&](const auto& entry) { return caches.has_gone(entry.first); });
  forget_seen(cached, monotonic_now(), memory);
  std::vector<reconcile::Worker> workers = merge_pods(std::move(cached), memory);
  for (reconcile::Worker& worker : workers) worker.node_ready = caches.node_ready(worker.node);
  return workers;
}

}  // namespace

void bring_up_to_date(nlohmann::json& cached, JobMemory& memory) {
  if (!memory.written) return;
  nlohmann::json& version = cached["metadata"]["resourceVersion"];
  if (!version.is_string() || !memory.written->upon_versions.contains(version)) {
    memory.written.reset();
    return;
  }
  version = memory.written->version;
  cached["status"] = nlohmann::json::from_cbor(memory.written->status);
}

Reconciler::Reconciler(kube::Client& client, const Caches& caches, RendezvousHub& hub,
                       const JobKeys& keys, Applier& applier, queue::WorkQueue& queue,
                       std::shared_ptr<Logger> log)
    : client_(client),
      caches_(caches),
      hub_(hub),
      keys_(keys),
      applier_(applier),
      queue_(queue),
      log_(std::move(log)) {}

void Reconciler::look(const std::string& key, const net::Wait& wait) {
  JobMemory& memory = memory_of(key);
  const Caches::Job cached = caches_.job(key);
  if (memory.uid != (cached ? cached->uid : "")) gone(key, memory);
  if (!cached) return forget(key);
  memory.uid = cached->uid;
  if (const std::uint64_t round = distrust_; std::exchange(memory.looked_up, round) != round) {
    memory.companions.clear();
  }

  nlohmann::json tree = tree_of(cached->value);
  bring_up_to_date(tree, memory);
  DecodedJob decoded = decode(tree);
  reconcile::Observed observed;
  observed.job = std::move(decoded.job);
  observed.key_id = keys_.id_for(cached->uid);
  for (const api::FieldError& warning : decoded.warnings) {
    observed.advice.push_back(warning.sentence());
  }
  observed.workers = observe_pods(caches_, cached->uid, memory);
  ask_for_troubles(key, observed.workers, memory, wait);
  observed.companions = memory.companions;
  observed.removed_companions = memory.removed_companions;
  const WallTime now = wall_now();
  observed.progress = hub_.progress(cached->uid, observed.workers, now);
  observed.refusal = memory.refusal;
  observed.nodes = caches_.nodes();
  reconcile::take_own_time(observed, now);
  observed.runtime.companions = {
      reconcile::Companion::kKeySecret, reconcile::Companion::kHeadlessService,
      reconcile::Companion::kNetworkPolicy, reconcile::Companion::kPodGroup};

  const reconcile::Plan plan =
      decoded.errors.empty() ? reconcile::reconcile(observed, now)
                             : reconcile::refuse(observed, decoded.errors.front().sentence(), now);
  const Outcome outcome = applier_.apply(observed.job, decoded.status, plan, memory, wait);

  // However the rest went: a deadline does not wait for what a quota refuses.
  if (plan.requeue_after) {
    queue_.add_after(key, std::chrono::ceil<std::chrono::milliseconds>(*plan.requeue_after));
  }
  if (!outcome.complete) {
    if (outcome.error && is_news(outcome.error->problem)) {
      log_->warn("{}: {}", key, outcome.error->sentence());
    }
    queue_.add_rate_limited(key);
    return;
  }
  queue_.forget(key);
}

void Reconciler::ask_for_troubles(const std::string& key, std::vector<reconcile::Worker>& workers,
                                  JobMemory& memory, const net::Wait& wait) {
  std::vector<reconcile::Worker*> slow;
  std::map<std::string, JobMemory::Asked> asked;
  for (reconcile::Worker& worker : workers) {
    const bool starting = worker.phase == reconcile::WorkerPhase::kPending &&
                          !worker.node.empty() && !worker.terminating && worker.created &&
                          (worker.reason.empty() || worker.reason == kContainerCreating);
    if (!starting) continue;
    const auto age = wall_now() - *worker.created;
    if (age < kTimeToStart) {
      queue_.add_after(key, std::chrono::ceil<std::chrono::milliseconds>(kTimeToStart - age));
      continue;
    }
    slow.push_back(&worker);
    asked[worker.uid] = memory.asked[worker.uid];
  }
  // Each gets its turn.
  std::ranges::stable_sort(
      slow, {}, [&](const reconcile::Worker* worker) { return asked[worker->uid].when; });
  int questions = 0;
  for (reconcile::Worker* worker : slow) {
    JobMemory::Asked& answer = asked[worker->uid];
    const bool due = answer.when == MonotonicTime() || monotonic_now() - answer.when >= kAskAgain;
    if (due && questions++ < kMostAsked) {
      answer.when = monotonic_now();
      auto trouble = ask_for_trouble(client_, address_of(key).namespace_name, worker->uid, wait);
      if (trouble) {
        answer.trouble = std::move(trouble).value();
      } else {
        log_->warn("{}: {}", key, trouble.error().sentence());
      }
    }
    if (answer.trouble) {
      worker->reason = answer.trouble->reason;
      worker->message = answer.trouble->message;
    }
  }
  if (!slow.empty()) queue_.add_after(key, kAskAgain);
  memory.asked = std::move(asked);
}

JobMemory& Reconciler::memory_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return memories_[key];  // stays where it is until forget(), by whoever has the key
}

void Reconciler::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  memories_.erase(key);
}

void Reconciler::gone(const std::string& key, JobMemory& memory) {
  if (memory.uid.empty()) return;
  log_->info("{}: the job {} is gone", key, memory.uid);
  hub_.close(memory.uid);
  memory = {};
  queue_.forget(key);  // another of its name owes nothing for it
}

}  // namespace tilewright::manager
