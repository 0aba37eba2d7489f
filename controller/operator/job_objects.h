// What a kind of job decides about its objects and its status in the cluster.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/client/resource.h"
#include "controller/cluster/objects.h"
#include "controller/operator/job_keys.h"
#include "controller/operator/records.h"
#include "controller/policy/plan.h"

namespace tilewright::controller {

// An object that belongs to a job.
struct OwnedObject {
  kube::ResourceType type;
  nlohmann::json object;
  bool follows_spec = false;  // an existing one is changed if its spec differs
};

// Settings of the operator that owned objects need.
struct OwnedSettings {
  const JobKeys& keys;
  const std::vector<std::string>& metrics_namespaces;  // Options::metrics_namespaces
  const std::string& gang_scheduler;                   // Options::gang_scheduler
};

class JobObjects {
 public:
  virtual ~JobObjects() = default;

  virtual JobKind kind() const = 0;
  virtual kube::ResourceType resource() const = 0;
  virtual nlohmann::json pod(int index, const cluster::PodOptions& options) const = 0;
  virtual std::vector<OwnedObject> owned(policy::OwnedResource resource, const policy::Plan& plan,
                                         const OwnedSettings& settings) const = 0;
  // The Services of the workers from `first` to `last` - 1; empty if all share one.
  virtual std::vector<OwnedObject> services(int first, int last) const = 0;
  // The status to store.
  virtual nlohmann::json status(const api::TrainJobStatus& status) const = 0;
  // False if the API server has not stored a part of the status that the policies need. The next
  // status() then has another form.
  virtual bool accept_stored(const nlohmann::json& written, const nlohmann::json& stored) const = 0;
  virtual policy::Event event(policy::Event event, const api::TrainJobStatus& status) const = 0;
};

// The references must outlive the result, here and below.
std::unique_ptr<JobObjects> train_job_objects(const api::TrainJob& job);

// `view`: of the job (controller/cluster/pytorch_view.h). `workers`: as observed, for the counts in
// the status. `stored`: the status as stored by the API server, whose layout the next one keeps.
// `drops_state`: whether the API server is known to drop status.tilewright of PyTorchJobs; shared
// by all of them. `tcpstore`: PodOptions::tcpstore.
std::unique_ptr<JobObjects> pytorch_job_objects(const api::TrainJob& view,
                                                const api::PyTorchJob& job,
                                                const std::vector<policy::Worker>& workers,
                                                const nlohmann::json& stored,
                                                std::atomic<bool>& drops_state,
                                                std::string tcpstore);

}  // namespace tilewright::controller
