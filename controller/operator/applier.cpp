#include "controller/operator/applier.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "common/json/members.h"
#include "controller/operator/merge_patch.h"
#include "controller/operator/records.h"
#include "controller/operator/resources.h"
#include "controller/policy/elasticity.h"
#include "controller/policy/status.h"

namespace tilewright::controller {
namespace {

using kube::ApiError;
using kube::ApiResult;
using kube::ErrorKind;
using nlohmann::json;
using policy::OwnedResource;

// Reasons of errors that the applier itself detects.
constexpr const char* kNameTaken = "NameTaken";
constexpr const char* kCrdMissing = "CrdMissing";

// For an object in the job's namespace.
bool belongs_to(const json& object, const api::TrainJob& job, JobKind kind) {
  const auto owner = controlling_job(object);
  return owner && owner->uid == job.metadata.uid && owner->kind == kind;
}

// The informer finds a pod by its labels, so a pod without them would be awaited for ever.
bool is_worker_of(const json& pod, const api::TrainJob& job, JobKind kind) {
  const PodRecord record = record_of_pod(pod);
  return record.job_uid == job.metadata.uid && record.job_kind == kind;
}

// True if each member of `wanted` has its value in `existing`, to which the API server may have
// added defaults.
bool has_members(const json& existing, const json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    if (member(existing, name.c_str()) != value) return false;
  }
  return true;
}

// The API server's response to a request for a kind that it does not know is no Status object, so
// it has no reason.
bool is_unknown_kind(const ApiResult<json>& created) {
  return created.is(ErrorKind::kNotFound) && created.error().reason.empty();
}

policy::RejectionCause cause_of_invalid(const std::string& reason) {
  if (reason == kNameTaken) return policy::RejectionCause::kNameTaken;
  if (reason == kCrdMissing) return policy::RejectionCause::kCrdMissing;
  return policy::RejectionCause::kInvalid;
}

// Returns the rejection to report in the job's condition, or std::nullopt for errors that are not
// caused by the job.
std::optional<policy::Rejection> rejection_of(const ApiError& error) {
  switch (error.kind) {
    case ErrorKind::kForbidden:
      if (error.message.find("exceeded quota") != std::string::npos) {
        return policy::Rejection{policy::RejectionCause::kQuotaExceeded, error.message};
      }
      return policy::Rejection{policy::RejectionCause::kForbidden, error.message};
    case ErrorKind::kInvalid:
      return policy::Rejection{cause_of_invalid(error.reason), error.message};
    default:
      return std::nullopt;
  }
}

}  // namespace

// The execution of one plan.
class Applier::PlanExecution {
 public:
  PlanExecution(Applier& owner, const api::TrainJob& job, const json& stored,
                const policy::Plan& plan, JobExpectations& expectations, const net::Wait& wait,
                const JobObjects& objects)
      : deps_(owner.deps_),
        rendezvous_(owner.rendezvous_),
        log_(*owner.log_),
        job_(job),
        stored_(stored),
        plan_(plan),
        expectations_(expectations),
        wait_(wait),
        objects_(objects) {}

  ApplyResult run() {
    for (const auto& event : resolve_unknown_outcomes(job_, expectations_))
      record_event(job_, event);
    // The status comes first; if its write fails, nothing else is done.
    if (plan_.status && !write_status()) return outcome_;
    rejection_.reset();
    for_each_parallel(plan_.deletions, &PlanExecution::remove_pod);
    update_rendezvous();
    ensure_owned_resources();
    if (outcome_.complete) create_pods();
    for_each_parallel(plan_.remove, &PlanExecution::remove);
    // The job may have become smaller with the change that suspends it.
    if (std::ranges::find(plan_.remove, OwnedResource::kHeadlessService) != plan_.remove.end()) {
      remove_surplus_services();
    }
    for (const policy::Event& event : plan_.events) record_event(written_, event);
    if (plan_.delete_job) remove_job();
    expectations_.rejection = rejection_;
    return outcome_;
  }

 private:
  void record_error(const ApiError& error) {
    outcome_.complete = false;
    if (!outcome_.error) outcome_.error = error;
  }

  void record_event(const api::TrainJob& job, const policy::Event& event) {
    deps_.recorder.record(job, objects_.event(event, job.status), objects_.kind());
  }

  // Replaces `stored`, the status of this version, by `wanted`.
  ApiResult<json> patch_status(const std::string& version, const json& stored, const json& wanted) {
    const json patch = {{"metadata", {{"uid", job_.metadata.uid}, {"resourceVersion", version}}},
                        {"status", merge_patch_between(stored, wanted)}};
    kube::PatchOptions options;
    options.subresource = "status";
    return deps_.client.patch(deps_.guard, objects_.resource(), job_.metadata.namespace_name,
                              job_.metadata.name, kube::PatchType::kMerge, patch, options, wait_);
  }

  bool write_status() {
    const json wanted = objects_.status(*plan_.status);
    auto written = patch_status(job_.metadata.resource_version, stored_, wanted);
    std::set<std::string> base_versions = {job_.metadata.resource_version};
    if (written && !objects_.accept_stored(wanted, written->value("status", json::object()))) {
      const json first = *std::move(written);
      const std::string version =
          first.value("metadata", json::object()).value("resourceVersion", "");
      base_versions.insert(version);
      written = patch_status(version, first.value("status", json::object()),
                             objects_.status(*plan_.status));
    }
    if (!written) {
      // The job was deleted or changed: its watch event triggers the next reconcile. The change can
      // be this write itself, applied by an attempt whose response was lost.
      if (written.error().maybe_applied || written.is(ErrorKind::kConflict)) {
        add_unknown_outcome({job_.metadata.resource_version, *plan_.status, plan_.events},
                            expectations_);
      }
      record_error(written.error());
      return false;
    }
    const json metadata = written->value("metadata", json::object());
    written_ = job_;
    written_.status = *plan_.status;
    written_.metadata.resource_version = metadata.value("resourceVersion", "");
    expectations_.unknown_outcomes.clear();  // same base version, so they were not applied
    JobExpectations::Written& last_write =
        expectations_.written ? *expectations_.written : expectations_.written.emplace();
    last_write.base_versions.merge(base_versions);
    last_write.version = written_.metadata.resource_version;
    last_write.status = json::to_cbor(written->value("status", json::object()));
    last_write.status.shrink_to_fit();
    return true;
  }

  // Runs `work` for each item, concurrently.
  template <typename Items, typename Work>
  void for_each_parallel(const Items& items, Work work) {
    std::vector<std::function<void()>> tasks;
    tasks.reserve(items.size());
    for (const auto& item : items) tasks.emplace_back([this, work, &item] { (this->*work)(item); });
    deps_.pool.run_all(tasks);
  }

  void remove_pod(const policy::WorkerDeletion& deletion) {
    if (deletion.with_service) {
      for (const OwnedObject& service : objects_.services(deletion.index, deletion.index + 1)) {
        if (!remove_object(service)) return;
      }
    }
    kube::DeleteOptions options;
    options.uid = deletion.uid;
    if (deletion.force) options.grace_seconds = 0;
    const auto removed =
        deps_.client.remove(deps_.guard, kube::resource::pods(), job_.metadata.namespace_name,
                            deletion.name, options, wait_);
    const bool gone = removed.is(ErrorKind::kNotFound) ||
                      (removed.is(ErrorKind::kConflict) && !still_exists(deletion));
    const std::lock_guard lock(mutex_);
    if (!removed && !gone) return record_rejection(removed.error());
    log_.info("{}: deleted {}: {}", job_.metadata.name, deletion.name,
              policy::to_string(deletion.reason));
    expectations_.deleted[deletion.uid] = {gone || deletion.force, monotonic_now()};
  }

  // Called after a conflict. True if the pod with this UID still exists.
  bool still_exists(const policy::WorkerDeletion& deletion) const {
    const auto found = deps_.client.get(kube::resource::pods(), job_.metadata.namespace_name,
                                        deletion.name, wait_);
    if (!found) return !found.is(ErrorKind::kNotFound);
    return found->value(json::json_pointer("/metadata/uid"), "") == deletion.uid;
  }

  void update_rendezvous() {
    if (!plan_.membership) return deps_.hub.close(job_.metadata.uid);
    const Status expected = deps_.hub.expect(job_.metadata.uid, *plan_.membership, [this] {
      const auto last_epoch = static_cast<rendezvous::Epoch>(job_.status.rendezvous_epoch);
      const RdzvConf conf = api::rdzv_conf(job_);
      return RendezvousHub::Job{
          key_of(job_.metadata.namespace_name, job_.metadata.name, objects_.kind()),
          deps_.keys.key_for(job_.metadata.uid),
          api::global_batch(job_),
          last_epoch,
          conf.tls,
          policy::last_checkpoint_step(job_.status),
          api::is_exact(job_),
          job_.status.instruction_set,
          conf.heartbeat_timeout()};
    });
    if (!expected) {
      ApiError error;
      error.operation = "open the rendezvous of " + job_.metadata.name;
      error.message = expected.error().message;
      record_error(error);
    }
  }

  std::vector<OwnedObject> build_owned_resource(OwnedResource kind) const {
    return objects_.owned(kind, plan_,
                          {deps_.keys, deps_.metrics_namespaces, deps_.gang_scheduler});
  }

  // Returns at least the metadata of the object. If the object exists and belongs to the job
  // (created by an earlier attempt or leader), it counts as created. An object of another owner is
  // an error.
  ApiResult<json> create_or_get(const kube::ResourceType& type, const json& object) const {
    const std::string& namespace_name = job_.metadata.namespace_name;
    ApiResult<json> created = deps_.client.create(deps_.guard, type, namespace_name, object, wait_,
                                                  kube::ResponseFormat::kMetadata);
    if (is_unknown_kind(created)) return crd_missing(type, object["metadata"]["name"]);
    if (!created.is(ErrorKind::kAlreadyExists)) return created;
    // The name contains part of the job's UID and the key's id, so an existing Secret is the job's
    // own. The operator does not read it.
    if (type.kind == kube::resource::secrets().kind) return object;
    const std::string name = object["metadata"]["name"];
    created = deps_.client.get(type, namespace_name, name, wait_);
    if (!created) return created;
    const JobKind job_kind = objects_.kind();
    const bool own = type.kind == kube::resource::pods().kind
                         ? is_worker_of(*created, job_, job_kind)
                         : belongs_to(*created, job_, job_kind);
    if (!own) return name_taken(type, name, *created);
    return created;
  }

  struct EnsuredObject {
    OwnedResource kind;
    OwnedObject made;
  };

  void ensure_owned_resources() {
    std::vector<EnsuredObject> objects;
    for (const OwnedResource kind : plan_.ensure) {
      for (OwnedObject& made : build_owned_resource(kind)) {
        objects.push_back({kind, std::move(made)});
      }
    }
    for_each_parallel(objects, &PlanExecution::ensure);
    for (const OwnedResource kind : plan_.ensure) {
      if (not_ensured_.contains(kind)) continue;
      expectations_.owned_resources.insert(kind);
      expectations_.removed_owned_resources.erase(kind);
    }
    const bool services_changed =
        std::ranges::find(plan_.ensure, OwnedResource::kHeadlessService) != plan_.ensure.end();
    if (services_changed) remove_surplus_services();
  }

  void ensure(const EnsuredObject& wanted) {
    const OwnedObject& made = wanted.made;
    ApiResult<json> created = create_or_get(made.type, made.object);
    if (created && made.follows_spec && created->contains("spec") &&
        !has_members((*created)["spec"], made.object["spec"])) {
      const json patch = {{"metadata", {{"uid", (*created)["metadata"]["uid"]}}},
                          {"spec", made.object["spec"]}};
      created = deps_.client.patch(deps_.guard, made.type, job_.metadata.namespace_name,
                                   made.object["metadata"]["name"].get<std::string>(),
                                   kube::PatchType::kMerge, patch, {}, wait_);
    }
    if (created) return;
    const std::lock_guard lock(mutex_);
    not_ensured_.insert(wanted.kind);
    record_rejection(created.error());
  }

  // After a scale-down. A new leader does not know whether there was one.
  void remove_surplus_services() {
    const policy::Sizes sizes = policy::sizes_of(job_);
    const int desired = sizes.desired;
    const int known = std::exchange(expectations_.services, desired);
    const int before = known == 0 ? sizes.max : known;
    if (before > desired) {
      for_each_parallel(objects_.services(desired, before), &PlanExecution::remove_object);
    }
  }

  // With the mutex held.
  void record_rejection(const ApiError& error) {
    record_error(error);
    if (!rejection_) rejection_ = rejection_of(error);
  }

  ApiError cannot_create(const kube::ResourceType& type, const std::string& name,
                         const char* reason, std::string message) const {
    ApiError error;
    error.kind = ErrorKind::kInvalid;
    error.reason = reason;
    error.operation = "create " + kube::describe_resource(type, job_.metadata.namespace_name, name);
    error.message = std::move(message);
    return error;
  }
  ApiError name_taken(const kube::ResourceType& type, const std::string& name,
                      const json& existing) const {
    // A pod of the job without the labels of a worker, such as one that Kubeflow's operator created
    // before this one ran the job.
    const char* origin = belongs_to(existing, job_, objects_.kind())
                             ? "was created for the job by another operator: delete it once it "
                               "has ended, or create the job again"
                             : "does not belong to the job";
    return cannot_create(type, name, kNameTaken,
                         fmt::format("a {} named {} exists and {}", type.kind, name, origin));
  }
  ApiError crd_missing(const kube::ResourceType& type, const std::string& name) const {
    return cannot_create(type, name, kCrdMissing,
                         fmt::format("the cluster has no CRD of {} {}: install {}.{}", type.kind,
                                     type.api_version(), type.plural, type.group));
  }

  std::string key_id() const { return deps_.keys.id_for(job_.metadata.uid); }

  // Schedulers process pods in creation order. Worker 0 of an elastic job is created first, so that
  // it runs even if the cluster has capacity for some workers only: its log is the one users read.
  void create_pods() {
    std::span<const policy::WorkerCreation> left = plan_.creations;
    if (left.empty()) return;
    pod_options_ = {rendezvous_(), key_id(), plan_.node_constraint};
    pod_options_.gang_scheduler = deps_.gang_scheduler;
    const bool elastic =
        plan_.membership && plan_.membership->min_world < plan_.membership->max_world;
    if (elastic && left.size() > 1) {
      create_pod(left.front());
      left = left.subspan(1);
    }
    for_each_parallel(left, &PlanExecution::create_pod);
  }

  void create_pod(const policy::WorkerCreation& creation) {
    const ApiResult<json> created =
        create_or_get(kube::resource::pods(), objects_.pod(creation.index, pod_options_));
    const std::lock_guard lock(mutex_);
    if (!created) return record_rejection(created.error());
    const PodRecord record = record_of_pod(*created);
    expectations_.created[record.worker.uid] = {record.worker, monotonic_now()};
  }

  void remove(const OwnedResource& kind) {
    bool removed = true;
    for (const OwnedObject& made : build_owned_resource(kind)) {
      removed = remove_object(made) && removed;
    }
    if (!removed) return;
    const std::lock_guard lock(mutex_);
    expectations_.owned_resources.erase(kind);
    expectations_.removed_owned_resources.insert(kind);
  }

  // True if the object does not exist any more, or belongs to another owner.
  bool remove_object(const OwnedObject& made) {
    const std::string name = made.object["metadata"]["name"];
    const std::string& namespace_name = job_.metadata.namespace_name;
    kube::DeleteOptions options;
    if (made.type.kind != kube::resource::secrets().kind) {
      const auto found = deps_.client.get(made.type, namespace_name, name, wait_);
      if (found.is(ErrorKind::kNotFound)) return true;
      if (!found) return fail(found.error());
      if (!belongs_to(*found, job_, objects_.kind())) return true;
      options.uid = (*found)["metadata"]["uid"];
    }
    const auto deleted =
        deps_.client.remove(deps_.guard, made.type, namespace_name, name, options, wait_);
    return deleted || deleted.is(ErrorKind::kNotFound) || fail(deleted.error());
  }

  bool fail(const ApiError& error) {
    const std::lock_guard lock(mutex_);
    record_error(error);
    return false;
  }

  void remove_job() {
    kube::DeleteOptions options;
    options.uid = job_.metadata.uid;
    // A newer version may have another ttlSecondsAfterFinished.
    options.resource_version = written_.metadata.resource_version;
    options.propagation = "Background";
    const auto removed =
        deps_.client.remove(deps_.guard, objects_.resource(), job_.metadata.namespace_name,
                            job_.metadata.name, options, wait_);
    if (!removed && !removed.is(ErrorKind::kNotFound)) record_error(removed.error());
  }

  const Dependencies& deps_;
  const std::function<std::string()>& rendezvous_;
  cluster::PodOptions pod_options_;  // for the pods to create
  Logger& log_;
  const api::TrainJob& job_;
  const json& stored_;
  const policy::Plan& plan_;
  JobExpectations& expectations_;
  const net::Wait& wait_;
  const JobObjects& objects_;
  api::TrainJob written_ = job_;  // with the written status and version, for events
  std::mutex mutex_;              // protects the following and expectations_ in concurrent tasks
  std::optional<policy::Rejection> rejection_;
  std::set<OwnedResource> not_ensured_;
  ApplyResult outcome_;
};

ApplyResult Applier::apply(const api::TrainJob& job, const json& stored, const policy::Plan& plan,
                           JobExpectations& expectations, const net::Wait& wait,
                           const JobObjects& objects) {
  return PlanExecution(*this, job, stored, plan, expectations, wait, objects).run();
}

}  // namespace tilewright::controller
