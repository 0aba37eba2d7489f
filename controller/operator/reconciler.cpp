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

std::vector<policy::Worker> observe_pods(const Caches& caches, const JobId& job,
                                         JobExpectations& expectations) {
  std::vector<policy::Worker> cached;
  for (const Caches::Pod& pod : caches.pods_of(job)) cached.push_back(pod->value.worker);
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
  if (expectations.uid != (cached ? cached->uid : "")) handle_deleted(key, expectations);
  if (!cached) return forget(key);
  expectations.uid = cached->uid;
  if (const std::uint64_t round = invalidation_round_;
      std::exchange(expectations.invalidation_round, round) != round) {
    expectations.owned_resources.clear();
  }

  const JobKind kind = parse_key(key).kind;
  nlohmann::json tree = tree_of(cached->value);
  overlay_written_status(tree, expectations);
  DecodedJob decoded = decode(tree, kind, deps_.gang_scheduler);
  policy::Observed observed;
  observed.job = std::move(decoded.job);
  observed.traits = std::move(decoded.traits);
  forget_outdated_resources(observed, expectations);
  observed.key_id = deps_.keys.id_for(cached->uid);
  for (const FieldError& warning : decoded.warnings) {
    observed.warnings.push_back(warning.sentence());
  }
  observed.workers =
      observe_pods(deps_.caches, {cached->namespace_name, cached->uid, kind}, expectations);
  const std::string tcpstore =
      decoded.pytorch
          ? serve_store({cached->namespace_name, cached->uid, kind}, *decoded.pytorch, observed)
          : "";
  read_start_failures(key, observed, expectations, wait);
  observed.owned_resources = expectations.owned_resources;
  observed.removed_owned_resources = expectations.removed_owned_resources;
  const WallTime now = wall_now();
  deps_.hub.report_ended(cached->uid, observed.workers);
  observed.rendezvous = deps_.hub.view(cached->uid, observed.workers, now);
  observed.rejection = expectations.rejection;
  observed.nodes = deps_.caches.nodes();
  policy::correct_clock_skew(observed, now);
  observed.runtime.owned_resources = {policy::OwnedResource::kKeySecret,
                                      policy::OwnedResource::kHeadlessService,
                                      policy::OwnedResource::kPodGroup};
  if (kind == JobKind::kTrainJob) {
    observed.runtime.owned_resources.insert(policy::OwnedResource::kNetworkPolicy);
  } else if (cluster::has_autoscaler(*decoded.pytorch)) {
    observed.runtime.owned_resources.insert(policy::OwnedResource::kAutoscaler);
  }

  const policy::Plan plan =
      decoded.errors.empty()
          ? policy::reconcile(observed, now)
          : policy::reconcile_invalid(observed, decoded.errors.front().sentence(), now);
  const auto objects = kind == JobKind::kTrainJob
                           ? train_job_objects(observed.job)
                           : pytorch_job_objects(observed.job, *decoded.pytorch, observed.workers,
                                                 decoded.status, drops_state_, tcpstore);
  const bool was_rejected = expectations.rejection.has_value();
  const ApplyResult outcome =
      deps_.applier.apply(observed.job, decoded.status, plan, expectations, wait, *objects);

  // Requeue also after a failure, so that for example an exceeded quota does not delay a deadline.
  if (plan.requeue_after) {
    deps_.queue.add_after(key, std::chrono::ceil<std::chrono::milliseconds>(*plan.requeue_after));
  }
  if (!outcome.complete) {
    if (outcome.error && is_worth_logging(outcome.error->kind)) {
      log_->warn("{}: {}", key, outcome.error->sentence());
    }
    deps_.queue.add_rate_limited(key);
    return;
  }
  deps_.queue.forget(key);
  // The status still has the rejection, and an accepted request need not cause a watch event.
  if (was_rejected && !expectations.rejection) deps_.queue.add(key);
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

std::string Reconciler::serve_store(const JobId& id, const api::PyTorchJob& job,
                                    policy::Observed& observed) {
  if (deps_.stores == nullptr) return "";
  std::set<std::string> addresses;
  bool others_use_worker_0 = false;
  for (const Caches::Pod& pod : deps_.caches.pods_of(id)) {
    const policy::WorkerPhase phase = pod->value.worker.phase;
    if (phase == policy::WorkerPhase::kSucceeded || phase == policy::WorkerPhase::kFailed) {
      if (!pod->value.uses_tcpstore || policy::runs_tilewright(observed)) continue;
      const auto worker = std::ranges::find(observed.workers, pod->uid, &policy::Worker::uid);
      if (worker != observed.workers.end() &&
          ended_with_its_store(*worker, deps_.stores->opened())) {
        worker->failure_cause = api::FailureCause::kInfrastructure;
        worker->reason = policy::failure_reason::kStoreLost;
      }
    } else if (pod->value.uses_tcpstore) {
      addresses.insert(pod->value.addresses.begin(), pod->value.addresses.end());
    } else {
      others_use_worker_0 = true;  // created while there was no store
    }
  }
  deps_.stores->serve(id.uid, addresses);
  const bool uses_store = cluster::uses_operator_tcpstore(job) && !others_use_worker_0;
  return uses_store ? deps_.stores->address_for_pods() : "";
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
