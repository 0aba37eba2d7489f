#include "controller/operator/caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/contract/labels.h"
#include "controller/operator/resources.h"

namespace tilewright::controller {
namespace {

// Must be longer than the deadline of a request: a pod can be deleted before the response to its
// creation arrives.
constexpr std::chrono::minutes kDeletedPodRetention{2};

kube::ReflectorOptions reflector_options(kube::ResourceType type, std::string namespace_name,
                                         std::string labels = "",
                                         kube::FieldFilter filter = kube::exclude_managed_fields) {
  kube::ReflectorOptions options;
  options.type = std::move(type);
  options.selection = {std::move(namespace_name), std::move(labels), "", filter};
  return options;
}

JobId job_of(const Caches::Pod& pod) {
  return {pod->namespace_name, pod->value.job_uid, pod->value.job_kind};
}

std::string key_of_job(const Caches::Pod& pod) {
  return key_of(pod->namespace_name, pod->value.job_name, pod->value.job_kind);
}

std::string worker_pods() {
  return fmt::format("{}={},{}={}", labels::kManagedBy, labels::kManagedByValue, labels::kRole,
                     labels::kRoleWorker);
}

}  // namespace

Caches::Caches(kube::Client& client, const std::string& namespace_name,
               std::function<void(const std::string&, Change)> changed,
               const std::shared_ptr<Logger>& logger, const PyTorchJobSelection& pytorch_jobs)
    : changed_(std::move(changed)),
      jobs_(client, reflector_options(resource::train_jobs(), namespace_name), record_of_job,
            job_handlers(JobKind::kTrainJob), logger),
      pods_(
          client,
          reflector_options(kube::resource::pods(), namespace_name, worker_pods(), keep_pod_field),
          record_of_pod,
          {[this](const Pod& pod) { pod_changed(nullptr, pod); },
           [this](const Pod& before, const Pod& now) { pod_changed(before, now); },
           [this](const Pod& last, bool) { pod_changed(last, nullptr); }},
          logger),
      nodes_(client, reflector_options(kube::resource::nodes(), "", "", keep_node_field),
             record_of_node,
             {[this](const auto& now) { node_changed(nullptr, &now->value); },
              [this](const auto& before, const auto& now) {
                node_changed(&before->value, &now->value);
              },
              [this](const auto& last, bool) { node_changed(&last->value, nullptr); }},
             logger) {
  if (!pytorch_jobs.enabled) return;
  pytorch_jobs_.emplace(
      client, reflector_options(resource::pytorch_jobs(), namespace_name),
      [pytorch_jobs](const nlohmann::json& object) {
        return record_of_pytorch_job(object, pytorch_jobs);
      },
      job_handlers(JobKind::kPyTorchJob), logger);
}

kube::InformerHandlers<JobRecord> Caches::job_handlers(JobKind kind) {
  const auto report = [this, kind](const Job& job, Change change) {
    if (job->value.managed) changed_(key_of(job->namespace_name, job->name, kind), change);
  };
  return {[report](const Job& job) { report(job, Change::kJob); },
          [report](const Job& before, const Job& now) {
            // Also if the job has just been handed to another operator.
            const Job& mine = now->value.managed ? now : before;
            report(mine, before->value.spec_version == now->value.spec_version ? Change::kStatus
                                                                               : Change::kJob);
          },
          [report](const Job& job, bool) { report(job, Change::kJob); }};
}

void Caches::start() {
  // Pods and nodes first: jobs are reconciled once all caches are filled.
  nodes_.start();
  pods_.start();
  jobs_.start();
  if (pytorch_jobs_) pytorch_jobs_->start();
}

void Caches::stop() {
  if (pytorch_jobs_) pytorch_jobs_->stop();
  jobs_.stop();
  pods_.stop();
  nodes_.stop();
}

bool Caches::synced() const { return jobs_.synced() && pods_.synced() && nodes_.synced(); }

bool Caches::wait_synced(const net::Wait& wait) const {
  return jobs_.wait_synced(wait) && pods_.wait_synced(wait) && nodes_.wait_synced(wait);
}

Caches::Job Caches::job(const std::string& key) const {
  const JobAddress address = parse_key(key);
  if (address.kind == JobKind::kTrainJob) return jobs_.get(address.namespace_name, address.name);
  if (!pytorch_jobs_) return nullptr;
  Job job = pytorch_jobs_->get(address.namespace_name, address.name);
  return job && job->value.managed ? job : nullptr;
}

std::vector<Caches::Job> Caches::all_jobs(JobKind kind) const {
  if (kind == JobKind::kTrainJob) return jobs_.all();
  std::vector<Job> jobs;
  if (pytorch_jobs_) jobs = pytorch_jobs_->all();
  std::erase_if(jobs, [](const Job& job) { return !job->value.managed; });
  return jobs;
}

std::vector<std::string> Caches::job_keys() const {
  std::vector<std::string> keys;
  for (const JobKind kind : {JobKind::kTrainJob, JobKind::kPyTorchJob}) {
    for (const Job& job : all_jobs(kind)) {
      keys.push_back(key_of(job->namespace_name, job->name, kind));
    }
  }
  return keys;
}

std::map<std::string, std::size_t> Caches::jobs_by_phase(JobKind kind) const {
  std::map<std::string, std::size_t> counts;
  for (const Job& job : all_jobs(kind)) {
    ++counts[job->value.phase.empty() ? "Pending" : job->value.phase];
  }
  return counts;
}

std::optional<WallTime> Caches::last_failure(JobKind kind) const {
  std::optional<WallTime> last;
  for (const Job& job : all_jobs(kind)) last = std::max(last, job->value.failed_at);
  return last;
}

std::vector<Caches::Job> Caches::jobs_with_results(JobKind kind) const {
  std::vector<Job> jobs = all_jobs(kind);
  std::erase_if(jobs, [](const Job& job) { return !job->value.results; });
  return jobs;
}

std::vector<Caches::Pod> Caches::pods_of(const JobId& job) const {
  std::vector<Pod> pods;
  const std::lock_guard lock(mutex_);
  const auto found = pods_by_job_.find(job);
  if (found == pods_by_job_.end()) return pods;
  for (const auto& [uid, pod] : found->second) pods.push_back(pod);
  return pods;
}

policy::NodeState Caches::node_state(const std::string& name) const {
  if (name.empty()) return policy::NodeState::kReady;
  if (const auto node = nodes_.get("", name)) return node->value.state;
  return nodes_.synced() ? policy::NodeState::kUnreachable : policy::NodeState::kReady;
}

void Caches::pod_changed(const Pod& before, const Pod& now) {
  {
    const std::lock_guard lock(mutex_);
    if (before && !before->value.job_uid.empty()) {
      const auto found = pods_by_job_.find(job_of(before));
      if (found != pods_by_job_.end()) {
        found->second.erase(before->uid);
        if (found->second.empty()) pods_by_job_.erase(found);
      }
    }
    if (before && !now) record_deleted_pod(before->uid);
    if (now && !now->value.job_uid.empty()) pods_by_job_[job_of(now)][now->uid] = now;
  }
  for (const Pod& pod : {before, now}) {
    if (pod && !pod->value.job_uid.empty()) {
      changed_(key_of_job(pod), Change::kWorkers);
      return;
    }
  }
}

void Caches::record_deleted_pod(const std::string& pod_uid) {
  const MonotonicTime now = monotonic_now();
  if (deleted_pods_.insert_or_assign(pod_uid, now).second) deleted_pods_order_.push_back(pod_uid);
  while (now - deleted_pods_.at(deleted_pods_order_.front()) > kDeletedPodRetention) {
    deleted_pods_.erase(deleted_pods_order_.front());
    deleted_pods_order_.pop_front();
  }
}

bool Caches::was_recently_deleted(const std::string& pod_uid) const {
  const std::lock_guard lock(mutex_);
  return deleted_pods_.contains(pod_uid);
}

void Caches::node_changed(const NodeRecord* before, const NodeRecord* now) {
  const NodeRecord& either = now != nullptr ? *now : *before;
  {
    const std::lock_guard lock(mutex_);
    all_nodes_.reset();
    ++node_changes_;
  }
  // Affects the pods on this node, and unscheduled pods that may now fit.
  const bool state_changed = before != nullptr && (now == nullptr || before->state != now->state);
  const bool capacity_changed = now != nullptr && (before == nullptr || before->node != now->node);
  if (!state_changed && !capacity_changed) return;
  std::set<std::string> keys;
  for (const Pod& pod : pods_.all()) {
    const std::string& on = pod->value.worker.node;
    const bool affected =
        (state_changed && on == either.node.name) || (capacity_changed && on.empty());
    if (affected && !pod->value.job_name.empty()) {
      keys.insert(key_of_job(pod));
    }
  }
  for (const std::string& key : keys) changed_(key, Change::kWorkers);
}

std::shared_ptr<const std::vector<policy::Node>> Caches::nodes() const {
  std::uint64_t changes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (all_nodes_) return all_nodes_;
    changes = node_changes_;
  }
  auto made = std::make_shared<std::vector<policy::Node>>();
  for (const auto& node : nodes_.all()) made->push_back(node->value.node);
  const std::lock_guard lock(mutex_);
  if (changes == node_changes_) all_nodes_ = made;
  return made;
}

}  // namespace tilewright::controller
