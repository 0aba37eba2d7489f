#include "controller/operator/reconciler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "controller/cluster/diagnose.h"
#include "controller/cluster/pytorch_objects.h"
#include "controller/operator/job_objects.h"
#include "controller/policy/clock_skew.h"
#include "controller/policy/job_state.h"
#include "controller/policy/messages.h"
#include "controller/policy/reconcile.h"

namespace tilewright::controller {
namespace {

// A pod normally starts within seconds. After this time its events are read to find the cause.
constexpr std::chrono::seconds kTimeToStart{15};
constexpr std::chrono::seconds kEventsRecheckInterval{30};
// Maximum number of pods per reconcile whose events are read. The pods of a job usually fail to
// start for the same reason.
constexpr int kMaxEventReads = 4;
// Cap on the Retry-After of an API server, which asks for at most 32 s.
constexpr std::chrono::seconds kLongestRetryAfter{60};
constexpr const char* kContainerCreating = "ContainerCreating";

// False for expected errors. For example, a watch event follows a conflict, and the end of a
// session cancels its requests.
bool is_worth_logging(kube::ErrorKind kind) {
  switch (kind) {
    case kube::ErrorKind::kConflict:
    case kube::ErrorKind::kNotFound:
    case kube::ErrorKind::kCancelled:
    case kube::ErrorKind::kFenced:
      return false;
    default:
      return true;
  }
}

std::vector<policy::Worker> workers_of(const std::vector<Caches::Pod>& pods, const Caches& caches,
                                       JobExpectations& expectations) {
  std::vector<policy::Worker> cached;
  cached.reserve(pods.size());
  for (const Caches::Pod& pod : pods) cached.push_back(pod->value.worker);
  // A pod can be deleted before the response to its creation arrives.
  std::erase_if(expectations.created,
                [&](const auto& entry) { return caches.was_recently_deleted(entry.first); });
  drop_observed(cached, monotonic_now(), expectations);
  std::vector<policy::Worker> workers = merge_pods(std::move(cached), expectations);
  for (policy::Worker& worker : workers) worker.node_state = caches.node_state(worker.node);
  return workers;
}

// The PodGroup and the autoscaler follow the job's spec, and so do the Services of the workers.
void forget_outdated_resources(const policy::Observed& observed, JobExpectations& expectations) {
  const std::int64_t generation = observed.job.metadata.generation;
  if (std::exchange(expectations.generation, generation) == generation) return;
  std::set<policy::OwnedResource>& known = expectations.owned_resources;
  known.erase(policy::OwnedResource::kPodGroup);
  known.erase(policy::OwnedResource::kAutoscaler);
  if (observed.traits.service_per_worker) known.erase(policy::OwnedResource::kHeadlessService);
}

// The owned resources that the operator creates for a job of this kind.
std::set<policy::OwnedResource> owned_resources_of(JobKind kind, const DecodedJob& decoded) {
  std::set<policy::OwnedResource> resources = {policy::OwnedResource::kKeySecret,
                                               policy::OwnedResource::kHeadlessService,
                                               policy::OwnedResource::kPodGroup};
  if (kind == JobKind::kTrainJob) {
    resources.insert(policy::OwnedResource::kNetworkPolicy);
  } else if (cluster::has_autoscaler(*decoded.pytorch)) {
    resources.insert(policy::OwnedResource::kAutoscaler);
  }
  return resources;
}

policy::Plan plan_for(const policy::Observed& observed, const DecodedJob& decoded, WallTime now) {
  if (decoded.errors.empty()) return policy::reconcile(observed, now);
  return policy::reconcile_invalid(observed, decoded.errors.front().sentence(), now);
}

// The addresses of the pods, except ended ones, whose agents use a store of this operator.
std::set<std::string> addresses_of_store_clients(const std::vector<Caches::Pod>& pods) {
  std::set<std::string> addresses;
  for (const Caches::Pod& pod : pods) {
    const PodRecord& record = pod->value;
    if (policy::has_ended(record.worker) || !record.uses_tcpstore) continue;
    addresses.insert(record.addresses.begin(), record.addresses.end());
  }
  return addresses;
}

// True if a pod that has not ended was created while there was no store.
bool uses_worker_0(const std::vector<Caches::Pod>& pods) {
  return std::ranges::any_of(pods, [](const Caches::Pod& pod) {
    return !policy::has_ended(pod->value.worker) && !pod->value.uses_tcpstore;
  });
}

// Marks the workers that ended with the stores of an earlier leader. `opened`: the time at which
// those of this leader did.
void mark_lost_stores(const std::vector<Caches::Pod>& pods, WallTime opened,
                      policy::Observed& observed) {
  if (policy::runs_tilewright(observed)) return;
  for (const Caches::Pod& pod : pods) {
    if (!policy::has_ended(pod->value.worker) || !pod->value.uses_tcpstore) continue;
    const auto worker = std::ranges::find(observed.workers, pod->uid, &policy::Worker::uid);
    if (worker == observed.workers.end() || !ended_with_its_store(*worker, opened)) continue;
    worker->failure_cause = api::FailureCause::kInfrastructure;
    worker->reason = policy::failure_reason::kStoreLost;
  }
}

}  // namespace

void overlay_written_status(nlohmann::json& cached, JobExpectations& expectations) {
  if (!expectations.written) return;
  nlohmann::json& version = cached["metadata"]["resourceVersion"];
  if (!version.is_string() || !expectations.written->base_versions.contains(version)) {
    expectations.written.reset();
    return;
  }
  version = expectations.written->version;
  cached["status"] = nlohmann::json::from_cbor(expectations.written->status);
}

void Reconciler::reconcile(const std::string& key, const net::Wait& wait) {
  try {
    reconcile_job(key, wait);
  } catch (const std::exception& error) {
    handle_exception(key, error.what());
  }
}

void Reconciler::handle_exception(const std::string& key, const std::string& what) {
  log_->error("{}: the reconcile ended with an exception: {}", key, what);
  deps_.metrics.count_exception();
  deps_.queue.add_rate_limited(key);
  const Caches::Job cached = deps_.caches.job(key);
  if (!cached) return;
  expectations_of(key).rejection = policy::Rejection{policy::RejectionCause::kInternalError, what};
  api::TrainJob job;
  job.metadata.name = cached->name;
  job.metadata.namespace_name = cached->namespace_name;
  job.metadata.uid = cached->uid;
  job.metadata.resource_version = cached->resource_version;
  deps_.recorder.record(job,
                        {true, policy::event_reason::kInternalError,
                         fmt::format("a bug in the operator stops the job: {}", what)},
                        parse_key(key).kind);
}

void Reconciler::reconcile_job(const std::string& key, const net::Wait& wait) {
  JobExpectations& expectations = expectations_of(key);
  const Caches::Job cached = deps_.caches.job(key);
  begin(key, cached, expectations);
  if (!cached) return forget(key);

  Observation observation = read_caches(key, *cached, expectations);
  publish_pods(observation);
  observe(key, wait, expectations, observation);
  const policy::Plan plan = plan_for(observation.observed, observation.decoded, observation.now);
  const auto objects = make_objects(observation);
  const bool was_rejected = expectations.rejection.has_value();
  const ApplyResult outcome = deps_.applier.apply(
      observation.observed.job, observation.decoded.status, plan, expectations, wait, *objects);
  requeue(key, plan, outcome, was_rejected && !expectations.rejection);
}

void Reconciler::begin(const std::string& key, const Caches::Job& cached,
                       JobExpectations& expectations) {
  const std::string uid = cached ? cached->uid : "";
  if (expectations.uid != uid) handle_deleted(key, expectations);
  expectations.uid = uid;
  if (const std::uint64_t round = invalidation_round_;
      std::exchange(expectations.invalidation_round, round) != round) {
    expectations.owned_resources.clear();
  }
}

Reconciler::Observation Reconciler::read_caches(const std::string& key,
                                                const kube::Cached<JobRecord>& cached,
                                                JobExpectations& expectations) const {
  Observation observation;
  observation.id = {cached.namespace_name, cached.uid, parse_key(key).kind};
  nlohmann::json tree = tree_of(cached.value);
  overlay_written_status(tree, expectations);
  observation.decoded = decode(tree, observation.id.kind, deps_.gang_scheduler);
  observation.observed.job = std::move(observation.decoded.job);
  observation.observed.traits = std::move(observation.decoded.traits);
  observation.pods = deps_.caches.pods_of(observation.id);
  observation.observed.workers = workers_of(observation.pods, deps_.caches, expectations);
  return observation;
}

void Reconciler::publish_pods(const Observation& observation) {
  const std::string& uid = observation.id.uid;
  if (observation.decoded.pytorch && deps_.stores != nullptr) {
    deps_.stores->serve(uid, addresses_of_store_clients(observation.pods));
  }
  deps_.hub.report_ended(uid, observation.observed.workers);
}

void Reconciler::observe(const std::string& key, const net::Wait& wait,
                         JobExpectations& expectations, Observation& observation) {
  policy::Observed& observed = observation.observed;
  if (observation.decoded.pytorch && deps_.stores != nullptr) {
    mark_lost_stores(observation.pods, deps_.stores->opened(), observed);
  }
  read_start_failures(key, observed, expectations, wait);
  observation.now = wall_now();
  for (const FieldError& warning : observation.decoded.warnings) {
    observed.warnings.push_back(warning.sentence());
  }
  observed.key_id = deps_.keys.id_for(observation.id.uid);
  forget_outdated_resources(observed, expectations);
  observed.owned_resources = expectations.owned_resources;
  observed.removed_owned_resources = expectations.removed_owned_resources;
  observed.rejection = expectations.rejection;
  observed.rendezvous = deps_.hub.view(observation.id.uid, observed.workers, observation.now);
  observed.nodes = deps_.caches.nodes();
  observed.runtime.owned_resources = owned_resources_of(observation.id.kind, observation.decoded);
  policy::correct_clock_skew(observed, observation.now);
}

std::unique_ptr<JobObjects> Reconciler::make_objects(const Observation& observation) {
  const policy::Observed& observed = observation.observed;
  if (observation.id.kind == JobKind::kTrainJob) return train_job_objects(observed.job);
  const api::PyTorchJob& job = *observation.decoded.pytorch;
  const bool uses_store = deps_.stores != nullptr && cluster::uses_operator_tcpstore(job) &&
                          !uses_worker_0(observation.pods);
  return pytorch_job_objects(observed.job, job, observed.workers, observation.decoded.status,
                             drops_state_, uses_store ? deps_.stores->address_for_pods() : "");
}

void Reconciler::requeue(const std::string& key, const policy::Plan& plan,
                         const ApplyResult& outcome, bool accepted_again) {
  // Also after a failure, so that for example an exceeded quota does not delay a deadline.
  if (plan.requeue_after) {
    deps_.queue.add_after(key, std::chrono::ceil<std::chrono::milliseconds>(*plan.requeue_after));
  }
  if (!outcome.complete) {
    if (outcome.error && is_worth_logging(outcome.error->kind)) {
      log_->warn("{}: {}", key, outcome.error->sentence());
    }
    const auto retry_after = outcome.error ? outcome.error->retry_after : std::nullopt;
    deps_.queue.add_rate_limited(
        key, std::min<Duration>(retry_after.value_or(Duration::zero()), kLongestRetryAfter));
    return;
  }
  deps_.queue.forget(key);
  // The status still has the rejection, and an accepted request need not cause a watch event.
  if (accepted_again) deps_.queue.add(key);
}

void Reconciler::read_start_failures(const std::string& key, policy::Observed& observed,
                                     JobExpectations& expectations, const net::Wait& wait) {
  std::vector<policy::Worker*> slow;
  std::map<std::string, JobExpectations::PodEventsCheck> pod_event_checks;
  for (policy::Worker& worker : observed.workers) {
    const bool starting = worker.phase == policy::WorkerPhase::kPending && !worker.node.empty() &&
                          !worker.terminating && worker.created && !worker.start_problem &&
                          (worker.reason.empty() || worker.reason == kContainerCreating);
    if (!starting) continue;
    const auto age = wall_now() - *worker.created;
    if (age < kTimeToStart) {
      deps_.queue.add_after(key, std::chrono::ceil<std::chrono::milliseconds>(kTimeToStart - age));
      continue;
    }
    slow.push_back(&worker);
    pod_event_checks[worker.uid] = expectations.pod_event_checks[worker.uid];
  }
  // Check the least recently checked pods first.
  std::ranges::stable_sort(
      slow, {}, [&](const policy::Worker* worker) { return pod_event_checks[worker->uid].when; });
  int event_reads = 0;
  for (policy::Worker* worker : slow) {
    JobExpectations::PodEventsCheck& check = pod_event_checks[worker->uid];
    const bool due =
        check.when == MonotonicTime() || monotonic_now() - check.when >= kEventsRecheckInterval;
    if (due && event_reads++ < kMaxEventReads) {
      check.when = monotonic_now();
      auto start_failure =
          read_start_failure(deps_.client, parse_key(key).namespace_name, worker->uid, wait);
      if (start_failure) {
        check.start_failure = std::move(start_failure).value();
      } else {
        log_->warn("{}: {}", key, start_failure.error().sentence());
      }
    }
    if (check.start_failure) {
      worker->reason = check.start_failure->reason;
      worker->message = check.start_failure->message;
      worker->start_problem =
          cluster::diagnose_start(worker->reason, worker->message, &observed.job);
    }
  }
  if (!slow.empty()) deps_.queue.add_after(key, kEventsRecheckInterval);
  expectations.pod_event_checks = std::move(pod_event_checks);
}

JobExpectations& Reconciler::expectations_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return expectations_[key];  // stable until forget(); only one thread processes the key
}

void Reconciler::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  expectations_.erase(key);
}

void Reconciler::handle_deleted(const std::string& key, JobExpectations& expectations) {
  if (expectations.uid.empty()) return;
  log_->info("{}: job {} was deleted", key, expectations.uid);
  deps_.hub.close(expectations.uid);
  if (deps_.stores != nullptr) deps_.stores->close(expectations.uid);
  expectations = {};
  deps_.queue.forget(key);  // a new job of this name starts without back-off
}

}  // namespace tilewright::controller
