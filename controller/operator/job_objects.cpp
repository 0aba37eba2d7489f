#include "controller/operator/job_objects.h"

#include <utility>

#include "controller/api/encode.h"
#include "controller/cluster/pytorch_objects.h"
#include "controller/cluster/pytorch_status.h"
#include "controller/cluster/pytorch_view.h"
#include "controller/operator/resources.h"
#include "controller/policy/elasticity.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using policy::OwnedResource;

template <typename Job>
std::vector<OwnedObject> key_secret_of(const Job& job, const JobKeys& keys) {
  const std::string& uid = job.metadata.uid;
  return {{kube::resource::secrets(),
           cluster::build_secret(job, keys.hex_key_for(uid), keys.id_for(uid))}};
}

// It follows the sizes of the job, which can change while it runs.
template <typename Job>
std::vector<OwnedObject> pod_group_of(const Job& job, const policy::Plan& plan,
                                      const std::string& gang_scheduler) {
  json group = cluster::build_pod_group(job, plan.gang.value_or(policy::Gang{}), gang_scheduler);
  return {{resource::pod_groups(group), std::move(group), true}};
}

class TrainJobObjects final : public JobObjects {
 public:
  explicit TrainJobObjects(const api::TrainJob& job) : job_(job) {}

  JobKind kind() const override { return JobKind::kTrainJob; }
  kube::ResourceType resource() const override { return resource::train_jobs(); }
  json pod(int index, const cluster::PodOptions& options) const override {
    return cluster::build_pod(job_, index, options);
  }
  std::vector<OwnedObject> owned(OwnedResource resource, const policy::Plan& plan,
                                 const OwnedSettings& settings) const override {
    switch (resource) {
      case OwnedResource::kKeySecret:
        return key_secret_of(job_, settings.keys);
      case OwnedResource::kHeadlessService:
        return {{kube::resource::services(), cluster::build_service(job_)}};
      case OwnedResource::kNetworkPolicy:
        return {{kube::resource::network_policies(),
                 cluster::build_network_policy(job_, settings.metrics_namespaces)}};
      case OwnedResource::kPodGroup:
        return pod_group_of(job_, plan, settings.gang_scheduler);
      case OwnedResource::kAutoscaler:
        break;
    }
    return {};
  }
  std::vector<OwnedObject> services(int, int) const override { return {}; }
  json status(const api::TrainJobStatus& status) const override { return api::to_json(status); }
  bool accept_stored(const json&, const json&) const override { return true; }
  policy::Event event(policy::Event event, const api::TrainJobStatus&) const override {
    return event;
  }

 private:
  const api::TrainJob& job_;
};

class PyTorchJobObjects final : public JobObjects {
 public:
  PyTorchJobObjects(const api::TrainJob& view, const api::PyTorchJob& job,
                    const std::vector<policy::Worker>& workers, const json& stored,
                    std::atomic<bool>& drops_state, std::string tcpstore)
      : view_(view),
        job_(job),
        workers_(workers),
        stored_layout_(cluster::layout_of(stored)),
        drops_state_(drops_state),
        tcpstore_(std::move(tcpstore)) {}

  JobKind kind() const override { return JobKind::kPyTorchJob; }
  kube::ResourceType resource() const override { return resource::pytorch_jobs(); }
  json pod(int index, const cluster::PodOptions& options) const override {
    cluster::PodOptions with_store = options;
    with_store.tcpstore = tcpstore_;
    return cluster::build_pod(job_, index, with_store);
  }
  std::vector<OwnedObject> owned(OwnedResource resource, const policy::Plan& plan,
                                 const OwnedSettings& settings) const override {
    switch (resource) {
      case OwnedResource::kKeySecret:
        return key_secret_of(job_, settings.keys);
      case OwnedResource::kHeadlessService:
        return services(0, policy::sizes_of(view_).desired);
      case OwnedResource::kPodGroup:
        return pod_group_of(job_, plan, settings.gang_scheduler);
      case OwnedResource::kAutoscaler:
        return {{resource::autoscalers(), cluster::build_autoscaler(job_), true}};
      case OwnedResource::kNetworkPolicy:
        break;  // the programs of the user's images listen on ports that are not known
    }
    return {};
  }
  std::vector<OwnedObject> services(int first, int last) const override {
    std::vector<OwnedObject> list;
    for (int index = first; index < last; ++index) {
      list.push_back({kube::resource::services(), cluster::build_service(job_, index)});
    }
    return list;
  }
  json status(const api::TrainJobStatus& status) const override {
    return cluster::encode_status(
        cluster::status_of(job_, status, workers_, wall_now()),
        drops_state_ ? cluster::StatusLayout::kCondition : stored_layout_);
  }
  bool accept_stored(const json& written, const json& stored) const override {
    if (!cluster::state_was_dropped(written, stored)) return true;
    drops_state_ = true;
    return false;
  }
  policy::Event event(policy::Event event, const api::TrainJobStatus& status) const override {
    return cluster::kubeflow_event(std::move(event), status);
  }

 private:
  const api::TrainJob& view_;
  const api::PyTorchJob& job_;
  const std::vector<policy::Worker>& workers_;
  const cluster::StatusLayout stored_layout_;
  std::atomic<bool>& drops_state_;
  const std::string tcpstore_;
};

}  // namespace

std::unique_ptr<JobObjects> train_job_objects(const api::TrainJob& job) {
  return std::make_unique<TrainJobObjects>(job);
}

std::unique_ptr<JobObjects> pytorch_job_objects(const api::TrainJob& view,
                                                const api::PyTorchJob& job,
                                                const std::vector<policy::Worker>& workers,
                                                const json& stored, std::atomic<bool>& drops_state,
                                                std::string tcpstore) {
  return std::make_unique<PyTorchJobObjects>(view, job, workers, stored, drops_state,
                                             std::move(tcpstore));
}

}  // namespace tilewright::controller
