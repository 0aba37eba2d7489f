#include "controller/cluster/pytorch_view.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "common/contract/labels.h"
#include "common/json/members.h"
#include "common/launch/dates.h"
#include "common/launch/unknown_value.h"
#include "controller/api/defaults.h"
#include "controller/api/expansion.h"
#include "controller/api/training_container.h"
#include "controller/cluster/pytorch_objects.h"
#include "controller/policy/messages.h"
#include "controller/policy/status.h"

namespace tilewright::cluster {
namespace {

using api::Phase;
using nlohmann::json;

std::int64_t replicas_of(const std::optional<api::PyTorchReplicaSpec>& replica) {
  return replica ? replica->replicas.value_or(1) : 0;
}

// Amounts are strings or numbers.
std::optional<api::Quantity> amount_of(const json& value) {
  if (value.is_string()) return api::parse_quantity(value.get<std::string>());
  if (value.is_number_integer()) return api::parse_quantity(value.dump());
  return std::nullopt;
}

// Requests default to limits.
std::map<std::string, api::Quantity> requests_of(const json& container) {
  std::map<std::string, api::Quantity> amounts;
  const json& resources = member(container, "resources");
  for (const char* list : {"requests", "limits"}) {
    for (const auto& [name, value] : member(resources, list).items()) {
      const auto amount = amount_of(value);
      if (amount) amounts.emplace(name, *amount);
    }
  }
  // Messages name the memory as a limit.
  const auto memory = amounts.find("memory");
  if (memory != amounts.end() &&
      amount_of(member(member(resources, "limits"), "memory")) != memory->second) {
    amounts.erase(memory);
  }
  return amounts;
}

// The parts of the template that the policies and their messages refer to.
void read_template(const api::PyTorchReplicaSpec& replica, api::Worker& worker) {
  const json& spec = member(replica.pod_template, "spec");
  if (const json* container = api::pytorch_container(replica)) {
    worker.image = string_member(*container, "image");
    worker.resources = requests_of(*container);
  }
  for (const auto& [name, value] : member(spec, "nodeSelector").items()) {
    if (value.is_string()) worker.node_selector.emplace(name, value.get<std::string>());
  }
  worker.scheduler_name = string_member(spec, "schedulerName");
  worker.priority_class_name = string_member(spec, "priorityClassName");
  const json& volumes = member(spec, "volumes");
  if (volumes.is_array()) worker.pod_template = {{"spec", {{"volumes", volumes}}}};
}

// --output_dir with its dates expanded at the creation of the job, in UTC as in the pods. Empty:
// the worker expands it, because only the pod knows a variable in it or a date has another form
// than date(1) has, which the worker reports.
std::string output_directory(const api::PyTorchJob& job, const api::Training& training) {
  std::string directory = training.arguments.settings().output_dir;
  if (launch::holds_date(directory)) {
    if (!job.metadata.creation_timestamp) return "";
    const auto since_1970 = job.metadata.creation_timestamp->time_since_epoch();
    Result<std::string> expanded = launch::expand_dates(
        directory, std::chrono::duration_cast<std::chrono::seconds>(since_1970).count(), true);
    if (!expanded.ok()) return "";
    directory = *std::move(expanded);
  }
  // The kubelet also expands $(NAME) of the variables that it sets for Services.
  const bool known =
      launch::unknown_variable(directory).empty() && api::unknown_references(directory, {}).empty();
  return known && directory.size() <= api::kMaxOutputDirectory ? directory : "";
}

// The processes of a pod, and what the flags of the native trainer decide for a TrainJob: sizes and
// exactness. An image other than Tilewright's takes no notice.
void read_training(const api::PyTorchJob& job, const api::PyTorchReplicaSpec& replica,
                   JobView& view) {
  api::GivenProcesses processes = api::given_processes(job.spec);
  if (api::pytorch_container(replica) != nullptr) {
    const api::TrainingContainer container(job.spec, replica, "");
    const Result<api::Training> training = container.training();
    if (training.ok()) {
      processes = api::given_processes(job.spec, container, training->command);
      for (const TrainingFlag& flag : training_flags()) {
        if (!flag.works() || flag.set_by_runtime || !training->arguments.is_set(flag.name))
          continue;
        view.job.spec.trainer.flags.emplace(flag.name,
                                            setting_value(training->arguments.settings(), flag));
      }
      view.trains_natively = true;
      view.traits.output_directory = output_directory(job, *training);
    }
  }
  view.job.spec.nproc_per_node.emplace(processes.number().value_or(1)).automatic =
      !processes.number();
}

const api::PyTorchCondition* find_condition(const std::vector<api::PyTorchCondition>& conditions,
                                            const char* type) {
  const auto found = std::ranges::find(conditions, type, &api::PyTorchCondition::type);
  return found == conditions.end() ? nullptr : &*found;
}

// Appends conditions in order.
class Conditions {
 public:
  Conditions(const std::vector<api::PyTorchCondition>& before, WallTime now)
      : before_(before), now_(std::chrono::floor<std::chrono::seconds>(now)) {}

  void add(const char* type, bool value, const std::string& reason, const std::string& message) {
    api::PyTorchCondition condition;
    condition.type = type;
    condition.status = value ? api::ConditionStatus::kTrue : api::ConditionStatus::kFalse;
    condition.reason = reason;
    condition.message = message;
    condition.last_update_time = condition.last_transition_time = now_;
    if (const auto* was = find_condition(before_, type); was && was->status == condition.status) {
      condition.last_transition_time = was->last_transition_time;
      const bool same = was->reason == reason && was->message == message;
      if (same) condition.last_update_time = was->last_update_time;
    }
    conditions_.push_back(std::move(condition));
  }
  std::vector<api::PyTorchCondition> take() { return std::move(conditions_); }

 private:
  const std::vector<api::PyTorchCondition>& before_;
  const WallTime now_;
  std::vector<api::PyTorchCondition> conditions_;
};

// "PyTorchJobRunning"
std::string reason_of(const char* state) { return std::string(kPyTorchJobKind) + state; }

const char* type_of(Phase phase) {
  namespace condition = api::condition;
  switch (phase) {
    case Phase::kRunning:
      return condition::kRunning;
    case Phase::kRestarting:
      return condition::kRestarting;
    case Phase::kSuspended:
      return condition::kSuspended;
    case Phase::kSucceeded:
      return condition::kSucceeded;
    case Phase::kFailed:
      return condition::kFailed;
    case Phase::kPending:
      break;
  }
  return condition::kCreated;
}

// As Kubeflow's operator orders them: the condition of the current state is the last one, which
// `kubectl get` shows. Running and Restarting exclude each other.
std::vector<api::PyTorchCondition> conditions_of(const api::PyTorchJob& job,
                                                 const api::TrainJobStatus& status, WallTime now) {
  namespace condition = api::condition;
  const std::vector<api::PyTorchCondition>& before = job.status.conditions;
  Conditions conditions(before, now);
  const auto message_of = [&](const char* type) {
    const api::Condition* found = status.find_condition(type);
    return found == nullptr ? "" : found->message;
  };
  const char* current = type_of(status.phase);
  const auto add = [&](const char* type, bool value, const char* state) {
    conditions.add(type, value, reason_of(state), message_of(type));
  };
  if (status.phase != Phase::kPending) add(condition::kCreated, true, "Created");
  if (const api::Condition* blocked = status.find_condition(condition::kBlocked)) {
    conditions.add(condition::kBlocked, blocked->status == api::ConditionStatus::kTrue,
                   blocked->reason, blocked->message);
  }
  if (status.phase != Phase::kSuspended && status.find_condition(condition::kSuspended)) {
    add(condition::kSuspended, false, "Resumed");
  }
  const bool running_or_restarting =
      status.phase == Phase::kRunning || status.phase == Phase::kRestarting;
  const api::PyTorchCondition* running = find_condition(before, condition::kRunning);
  if (!running_or_restarting && (running || find_condition(before, condition::kRestarting))) {
    // The reason stays until the job runs again.
    const bool suspended = status.phase == Phase::kSuspended ||
                           (running && running->reason == reason_of(condition::kSuspended));
    add(condition::kRunning, false, suspended ? condition::kSuspended : condition::kRunning);
  }
  add(current, true, current);
  return conditions.take();
}

// Counts as Kubeflow's operator counts: a pod is active while it is Running.
void count(const policy::Worker& worker, api::PyTorchReplicaStatus& counts) {
  switch (worker.phase) {
    case policy::WorkerPhase::kPending:
      return;
    case policy::WorkerPhase::kRunning:
      ++(worker.terminating ? counts.failed : counts.active);
      return;
    case policy::WorkerPhase::kSucceeded:
      ++counts.succeeded;
      return;
    case policy::WorkerPhase::kFailed:
      ++counts.failed;
      return;
  }
}

// The end of a job that another operator has run; nothing if it has not ended.
void take_over(const api::PyTorchJobStatus& from, api::TrainJobStatus& status) {
  for (const Phase phase : {Phase::kSucceeded, Phase::kFailed}) {
    const api::PyTorchCondition* ended = find_condition(from.conditions, type_of(phase));
    if (ended == nullptr || ended->status != api::ConditionStatus::kTrue) continue;
    status.phase = phase;
    status.start_time = from.start_time;
    status.completion_time =
        from.completion_time ? from.completion_time : ended->last_transition_time;
    api::Condition condition;
    condition.type = ended->type;
    condition.status = ended->status;
    condition.reason = ended->reason;
    condition.message = ended->message;
    condition.last_transition_time = ended->last_transition_time;
    status.conditions.push_back(std::move(condition));
    return;
  }
}

}  // namespace

JobView view_of(const api::PyTorchJob& job) {
  const api::PyTorchJobSpec& from = job.spec;
  JobView view;
  view.job.metadata = job.metadata;
  view.job.status = job.status.tilewright;
  if (view.job.status == api::TrainJobStatus()) take_over(job.status, view.job.status);
  api::TrainJobSpec& spec = view.job.spec;
  policy::JobTraits& traits = view.traits;

  const std::int64_t masters = replicas_of(from.master);
  const std::int64_t replicas = masters + replicas_of(from.worker);
  spec.worker.replicas = replicas;
  if (from.elastic_policy) {
    const api::PyTorchElasticPolicy& elastic = *from.elastic_policy;
    if (elastic.min_replicas) spec.elastic_policy.min_replicas = masters + *elastic.min_replicas;
    if (elastic.max_replicas) spec.elastic_policy.max_replicas = masters + *elastic.max_replicas;
    for (const api::PyTorchRdzvSetting& setting : elastic.rdzv_conf) {
      spec.elastic_policy.rdzv_conf.push_back({setting.key, setting.value});
    }
    spec.elastic_policy.max_restarts = elastic.max_restarts;
  }
  spec.run_policy = from.run_policy.common();
  if (spec.run_policy.backoff_limit) {
    spec.elastic_policy.max_restarts = spec.run_policy.backoff_limit;
  }
  if (!spec.elastic_policy.max_restarts) {
    spec.elastic_policy.max_restarts = kDefaultPyTorchRestarts;
  }
  // All of them, as for Kubeflow's operator.
  if (auto& gang = spec.run_policy.scheduling_policy; gang && !gang->min_available) {
    gang->min_available = replicas;
  }
  const auto& workers = from.worker ? from.worker : from.master;
  if (workers) {
    read_training(job, *workers, view);
    spec.worker.restart_policy = workers->restart_policy;
    read_template(*workers, spec.worker);
  }
  traits.has_master = masters > 0;
  if (from.master) traits.master_restart_policy = from.master->restart_policy;
  traits.runs_tilewright = false;
  traits.removed_when_inactive = {policy::OwnedResource::kPodGroup,
                                  policy::OwnedResource::kAutoscaler};
  traits.service_per_worker = true;
  traits.limits_delete_running = true;
  traits.fields = {"the resources of the container pytorch",
                   "the memory limit of the container pytorch", "nodeSelector of the pod template",
                   "affinity of the pod template"};
  api::apply_defaults(view.job);
  return view;
}

api::PyTorchJobStatus status_of(const api::PyTorchJob& job, const api::TrainJobStatus& status,
                                const std::vector<policy::Worker>& workers, WallTime now) {
  api::PyTorchJobStatus made;
  made.tilewright = status;
  made.start_time = status.start_time;
  made.completion_time = status.completion_time;
  made.last_reconcile_time = std::chrono::floor<std::chrono::seconds>(now);
  made.conditions = conditions_of(job, status, now);

  const bool has_master = job.spec.master.has_value();
  if (has_master) made.replica_statuses[api::kMasterType];
  if (job.spec.worker) made.replica_statuses[api::kWorkerType];
  const bool was_final = policy::is_final(job.status.tilewright.phase);
  for (const policy::Worker& worker : workers) {
    if (was_final && worker.terminating) continue;  // the clean-up deletes it
    const char* type = replica_of(job, worker.index).type();
    const auto found = made.replica_statuses.find(type);
    if (found != made.replica_statuses.end()) count(worker, found->second);
  }
  // Workers that have succeeded count although their pods are gone.
  std::set<std::string> pods;
  for (const policy::Worker& worker : workers) pods.insert(worker.name);
  const std::string master = replica_name(job, {.is_master = true});
  for (const std::string& name : status.succeeded_workers) {
    if (pods.contains(name)) continue;
    ++made.replica_statuses[has_master && name == master ? api::kMasterType : api::kWorkerType]
          .succeeded;
  }
  for (auto& [type, counts] : made.replica_statuses) {
    counts.selector = replica_selector(job, type);
    if (!policy::is_final(status.phase)) continue;
    if (status.phase == Phase::kSucceeded) counts.succeeded += std::exchange(counts.active, 0);
    // Pods that have been cleaned up still count.
    const auto before = job.status.replica_statuses.find(type);
    if (before == job.status.replica_statuses.end()) continue;
    const api::PyTorchReplicaStatus& was = before->second;
    const std::int64_t ended =
        status.phase == Phase::kSucceeded ? was.succeeded + was.active : was.succeeded;
    const auto& replica = type == api::kMasterType ? job.spec.master : job.spec.worker;
    counts.succeeded = std::max(counts.succeeded, std::min(ended, replicas_of(replica)));
    counts.failed = std::max(counts.failed, was.failed);
  }
  return made;
}

policy::Event kubeflow_event(policy::Event event, const api::TrainJobStatus& status) {
  namespace reasons = policy::event_reason;
  const std::pair<const char*, const char*> names[] = {
      {reasons::kCreated, "Created"},     {reasons::kRunning, "Running"},
      {reasons::kSuspended, "Suspended"}, {reasons::kResumed, "Resumed"},
      {reasons::kSucceeded, "Succeeded"}, {reasons::kWorkerFailed, "Restarting"}};
  const api::Condition* failed = status.find_condition(api::condition::kFailed);
  if (failed != nullptr && event.reason == failed->reason && event.message == failed->message) {
    event.reason = reason_of("Failed");
    return event;
  }
  // A failure that ends the job restarts nothing.
  if (failed != nullptr && event.reason == reasons::kWorkerFailed) return event;
  for (const auto& [ours, state] : names) {
    if (event.reason != ours) continue;
    event.reason = reason_of(state);
    break;
  }
  return event;
}

}  // namespace tilewright::cluster
