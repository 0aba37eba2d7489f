#include "controller/manager/applier.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "controller/api/encode.h"
#include "controller/manager/merge_patch.h"
#include "controller/manager/records.h"
#include "controller/manager/resources.h"
#include "controller/reconcile/objects.h"

namespace tilewright::manager {
namespace {

using kube::ApiError;
using kube::ApiResult;
using kube::Problem;
using nlohmann::json;
using reconcile::Companion;

constexpr const char* kNameTaken = "NameTaken";

bool belongs_to(const json& object, const api::TrainJob& job) {
  const auto owner = controlling_job(object);
  return owner && owner->uid == job.metadata.uid;
}

struct CompanionObject {
  kube::ResourceType type;
  json object;
};

// What the API server will not take for now, as the job's condition says it. Nothing for errors
// that say nothing about the job.
std::optional<reconcile::Refusal> refusal_of(const ApiError& error) {
  switch (error.problem) {
    case Problem::kForbidden:
      if (error.message.find("exceeded quota") != std::string::npos) {
        return reconcile::Refusal{"QuotaExceeded",
                                  "the namespace's quota is used up: " + error.message};
      }
      return reconcile::Refusal{"Forbidden", "the API server refuses: " + error.message};
    case Problem::kInvalid:
      if (error.reason == kNameTaken) return reconcile::Refusal{kNameTaken, error.message};
      return reconcile::Refusal{"Refused", "the API server refuses: " + error.message};
    default:
      return std::nullopt;
  }
}

}  // namespace

// One plan of one job.
class Applier::Application {
 public:
  Application(Applier& owner, const api::TrainJob& job, const json& stored,
              const reconcile::Plan& plan, JobMemory& memory, const net::Wait& wait)
      : parts_(owner.parts_),
        rendezvous_(owner.rendezvous_),
        log_(*owner.log_),
        job_(job),
        stored_(stored),
        plan_(plan),
        memory_(memory),
        wait_(wait) {}

  Outcome run() {
    for (const auto& event : settle_doubtful(job_, memory_)) parts_.recorder.record(job_, event);
    // Nothing else if the status could not be written.
    if (plan_.status && !write_status()) return outcome_;
    refusal_.reset();
    for_all(plan_.deletions, &Application::remove_pod);
    tell_rendezvous();
    for_all(plan_.ensure, &Application::ensure);
    if (outcome_.complete) create_pods();
    for_all(plan_.remove, &Application::remove);
    for (const reconcile::Event& event : plan_.events) parts_.recorder.record(written_, event);
    if (plan_.delete_job) remove_job();
    memory_.refusal = refusal_;
    return outcome_;
  }

 private:
  void failed(const ApiError& error) {
    outcome_.complete = false;
    if (!outcome_.error) outcome_.error = error;
  }

  bool write_status() {
    json patch = {
        {"metadata",
         {{"uid", job_.metadata.uid}, {"resourceVersion", job_.metadata.resource_version}}},
        {"status", merge_patch_between(stored_, api::to_json(*plan_.status))}};
    kube::PatchOptions options;
    options.subresource = "status";
    const auto written =
        parts_.client.patch(parts_.guard, resource::train_jobs(), job_.metadata.namespace_name,
                            job_.metadata.name, kube::PatchType::kMerge, patch, options, wait_);
    if (!written) {
      // Gone, or changed since: its event brings it back. That change can be this very write, done
      // by an attempt whose answer was lost here or between here and there.
      if (written.error().maybe_applied || written.is(Problem::kConflict)) {
        remember_doubtful({job_.metadata.resource_version, *plan_.status, plan_.events}, memory_);
      }
      failed(written.error());
      return false;
    }
    const json metadata = written->value("metadata", json::object());
    written_ = job_;
    written_.status = *plan_.status;
    written_.metadata.resource_version = metadata.value("resourceVersion", "");
    memory_.doubtful.clear();  // upon the same version: they were not done
    JobMemory::Written& memory = memory_.written ? *memory_.written : memory_.written.emplace();
    memory.upon_versions.insert(job_.metadata.resource_version);
    memory.version = written_.metadata.resource_version;
    memory.status = json::to_cbor(written->value("status", json::object()));
    memory.status.shrink_to_fit();
    return true;
  }

  // Each of them by itself, side by side.
  template <typename Items, typename Work>
  void for_all(const Items& items, Work work) {
    std::vector<std::function<void()>> tasks;
    tasks.reserve(items.size());
    for (const auto& item : items) tasks.emplace_back([this, work, &item] { (this->*work)(item); });
    parts_.pool.run_all(tasks);
  }

  void remove_pod(const reconcile::WorkerDeletion& deletion) {
    kube::DeleteOptions options;
    options.uid = deletion.uid;
    if (deletion.force) options.grace_seconds = 0;
    const auto removed =
        parts_.client.remove(parts_.guard, kube::resource::pods(), job_.metadata.namespace_name,
                             deletion.name, options, wait_);
    const bool gone =
        removed.is(Problem::kNotFound) || (removed.is(Problem::kConflict) && !is_there(deletion));
    const std::lock_guard lock(mutex_);
    if (!removed && !gone) return failed(removed.error());
    log_.info("{}: deleted {}: {}", job_.metadata.name, deletion.name, deletion.why);
    memory_.deleted[deletion.uid] = {gone || deletion.force, monotonic_now()};
  }

  // After a conflict, of which there are others than that the name is another one's by now.
  bool is_there(const reconcile::WorkerDeletion& deletion) const {
    const auto found = parts_.client.get(kube::resource::pods(), job_.metadata.namespace_name,
                                         deletion.name, wait_);
    if (!found) return !found.is(Problem::kNotFound);
    return found->value(json::json_pointer("/metadata/uid"), "") == deletion.uid;
  }

  void tell_rendezvous() {
    if (!plan_.membership) return parts_.hub.close(job_.metadata.uid);
    const Status told = parts_.hub.expect(job_.metadata.uid, *plan_.membership, [this] {
      const auto floor = static_cast<rendezvous::Epoch>(job_.status.rendezvous_epoch);
      return RendezvousHub::Job{key_of(job_.metadata.namespace_name, job_.metadata.name),
                                parts_.keys.key_for(job_.metadata.uid), api::global_batch(job_),
                                floor, api::uses_tls(job_)};
    });
    if (!told) {
      ApiError error;
      error.operation = "open the rendezvous of " + job_.metadata.name;
      error.message = told.error().message;
      failed(error);
    }
  }

  CompanionObject companion(Companion kind) const {
    switch (kind) {
      case Companion::kKeySecret:
        return {kube::resource::secrets(),
                reconcile::build_secret(job_, parts_.keys.text_for(job_.metadata.uid), key_id())};
      case Companion::kHeadlessService:
        return {kube::resource::services(), reconcile::build_service(job_)};
      case Companion::kNetworkPolicy:
        return {kube::resource::network_policies(), reconcile::build_network_policy(job_)};
      case Companion::kPodGroup:
        break;
    }
    json group = reconcile::build_pod_group(job_, plan_.gang.value_or(reconcile::Gang{}));
    return {resource::pod_groups(group), std::move(group)};
  }

  // At least the metadata of the object as it stands there, if it is the job's. An attempt of this
  // very call may have made it, or an earlier leader; or one of that name is somebody else's.
  ApiResult<json> create_or_find(const kube::ResourceType& type, const json& object) const {
    const std::string& space = job_.metadata.namespace_name;
    ApiResult<json> created =
        parts_.client.create(parts_.guard, type, space, object, wait_, kube::Answer::kMetadata);
    if (!created.is(Problem::kAlreadyExists)) return created;
    // A Secret's name holds the job's UID and the key's id: it is this very one. It is never read.
    if (type.kind == kube::resource::secrets().kind) return object;
    const std::string name = object["metadata"]["name"];
    created = parts_.client.get(type, space, name, wait_);
    if (created && !belongs_to(*created, job_)) return taken(type, name);
    return created;
  }

  void ensure(const Companion& kind) {
    const CompanionObject made = companion(kind);
    const ApiResult<json> created = create_or_find(made.type, made.object);
    const std::lock_guard lock(mutex_);
    if (created) {
      memory_.companions.insert(kind);
      memory_.removed_companions.erase(kind);
    } else {
      refused(created.error());
    }
  }

  // With the mutex held.
  void refused(const ApiError& error) {
    failed(error);
    if (!refusal_) refusal_ = refusal_of(error);
  }

  ApiError taken(const kube::ResourceType& type, const std::string& name) const {
    ApiError error;
    error.problem = Problem::kInvalid;
    error.reason = kNameTaken;
    error.operation = "create " + kube::described(type, job_.metadata.namespace_name, name);
    error.message = fmt::format("a {} {} that is not the job's is in the way", type.kind, name);
    return error;
  }

  std::string key_id() const { return parts_.keys.id_for(job_.metadata.uid); }

  // Schedulers take pods in the order of their creation. Where only some of an elastic job's
  // workers find room its first shall be among them: it is the one whose log people follow.
  void create_pods() {
    std::span<const reconcile::WorkerCreation> left = plan_.creations;
    if (left.empty()) return;
    setting_ = {rendezvous_(), key_id()};
    const bool elastic =
        plan_.membership && plan_.membership->min_world < plan_.membership->max_world;
    if (elastic && left.size() > 1) {
      create_pod(left.front());
      left = left.subspan(1);
    }
    for_all(left, &Application::create_pod);
  }

  void create_pod(const reconcile::WorkerCreation& creation) {
    const ApiResult<json> created = create_or_find(
        kube::resource::pods(), reconcile::build_pod(job_, creation.index, setting_));
    const std::lock_guard lock(mutex_);
    if (!created) return refused(created.error());
    const PodRecord record = record_of_pod(*created);
    memory_.created[record.worker.uid] = {record.worker, monotonic_now()};
  }

  void remove(const Companion& kind) {
    const CompanionObject made = companion(kind);
    const std::string name = made.object["metadata"]["name"];
    const std::string& space = job_.metadata.namespace_name;
    kube::DeleteOptions options;
    if (kind != Companion::kKeySecret) {
      const auto found = parts_.client.get(made.type, space, name, wait_);
      if (found && belongs_to(*found, job_)) {
        options.uid = (*found)["metadata"]["uid"];
      } else if (found || found.is(Problem::kNotFound)) {
        return removed(kind, nullptr);
      } else {
        return removed(kind, &found.error());
      }
    }
    const auto gone = parts_.client.remove(parts_.guard, made.type, space, name, options, wait_);
    const bool done = gone || gone.is(Problem::kNotFound);
    removed(kind, done ? nullptr : &gone.error());
  }

  void removed(Companion kind, const ApiError* error) {
    const std::lock_guard lock(mutex_);
    if (error != nullptr) return failed(*error);
    memory_.companions.erase(kind);
    memory_.removed_companions.insert(kind);
  }

  void remove_job() {
    kube::DeleteOptions options;
    options.uid = job_.metadata.uid;
    options.propagation = "Background";
    const auto removed =
        parts_.client.remove(parts_.guard, resource::train_jobs(), job_.metadata.namespace_name,
                             job_.metadata.name, options, wait_);
    if (!removed && !removed.is(Problem::kNotFound)) failed(removed.error());
  }

  const Parts& parts_;
  const std::function<std::string()>& rendezvous_;
  reconcile::PodSetting setting_;  // of the pods that are created
  Logger& log_;
  const api::TrainJob& job_;
  const json& stored_;
  const reconcile::Plan& plan_;
  JobMemory& memory_;
  const net::Wait& wait_;
  api::TrainJob written_ = job_;  // with the status and version that were written, for events
  std::mutex mutex_;              // of what follows and of memory_, while tasks run side by side
  std::optional<reconcile::Refusal> refusal_;
  Outcome outcome_;
};

Outcome Applier::apply(const api::TrainJob& job, const json& stored, const reconcile::Plan& plan,
                       JobMemory& memory, const net::Wait& wait) {
  return Application(*this, job, stored, plan, memory, wait).run();
}

}  // namespace tilewright::manager
