// The PyTorchJob (kubeflow.org/v1) of Kubeflow's training operator v1 as plain values.
// pytorchjob_fields.h describes its fields, decode.h reads it, defaults.h fills in defaults,
// validate.h checks it, and encode.h writes it. Names, defaults and meanings are those
// of github.com/kubeflow/training-operator v1.9, pkg/apis/kubeflow.org/v1.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/metadata.h"
#include "controller/api/status.h"
#include "controller/api/training_programs.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// A member of type std::optional is empty if the manifest does not set the field. Members marked
// "defaulted" have a value after apply_defaults().

// Unlike a TrainJob's RdzvSetting it may have any key.
struct PyTorchRdzvSetting {
  std::string key;
  std::string value;

  bool operator==(const PyTorchRdzvSetting&) const = default;
};

struct PyTorchElasticPolicy {
  // Defaulted: each is the other one; if both are missing, the Worker's replicas. Stay empty
  // without a Worker, which is an error.
  std::optional<std::int64_t> min_replicas;
  std::optional<std::int64_t> max_replicas;
  std::optional<std::string> rdzv_backend;  // empty: c10d
  std::optional<std::int64_t> rdzv_port;    // empty: rendezvous_port()
  std::optional<std::string> rdzv_host;     // empty: the first worker, JOB-worker-0
  std::optional<std::string> rdzv_id;       // empty: PET_RDZV_ID is not set
  std::vector<PyTorchRdzvSetting> rdzv_conf;
  std::optional<bool> standalone;
  std::optional<std::int64_t> nproc_per_node;  // deprecated: spec.nprocPerNode
  std::optional<std::int64_t> max_restarts;    // empty: PET_MAX_RESTARTS is not set
  nlohmann::json metrics;                      // null, or MetricSpecs for the HPA

  bool operator==(const PyTorchElasticPolicy&) const = default;
};

struct PyTorchReplicaSpec {
  std::optional<std::int64_t> replicas;         // defaulted: 1
  std::optional<RestartPolicy> restart_policy;  // defaulted: OnFailure
  // Null, or a PodTemplateSpec whose fields have the types of a pod. Defaulted: the container named
  // pytorch, or else the first one, has a port named pytorchjob-port.
  nlohmann::json pod_template;

  bool operator==(const PyTorchReplicaSpec&) const = default;
};

struct PyTorchSchedulingPolicy {
  SchedulingPolicy common;
  nlohmann::json min_resources;  // null, or amounts by resource

  bool operator==(const PyTorchSchedulingPolicy&) const = default;
};

struct PyTorchRunPolicy {
  std::optional<bool> suspend;  // defaulted: false
  std::optional<std::int64_t> ttl_seconds_after_finished;
  std::optional<std::int64_t> active_deadline_seconds;
  std::optional<std::int64_t> backoff_limit;
  std::optional<CleanPodPolicy> clean_pod_policy;  // defaulted: None
  std::optional<PyTorchSchedulingPolicy> scheduling_policy;
  std::optional<std::string> managed_by;  // empty: any operator of PyTorchJobs

  // The part that a TrainJob has too. A larger limit than a TrainJob can have becomes its maximum,
  // ten years or a million restarts, which no job reaches.
  RunPolicy common() const;
  bool operator==(const PyTorchRunPolicy&) const = default;
};

struct PyTorchJobSpec {
  PyTorchRunPolicy run_policy;
  std::optional<PyTorchElasticPolicy> elastic_policy;
  std::optional<PyTorchReplicaSpec> master;
  std::optional<PyTorchReplicaSpec> worker;
  // auto, cpu, gpu, xpu or N. Defaulted: auto, unless elasticPolicy.nProcPerNode is set.
  std::optional<std::string> nproc_per_node;

  bool operator==(const PyTorchJobSpec&) const = default;
};

struct PyTorchCondition {
  std::string type;  // Created, Running, Restarting, Succeeded, Suspended, Failed
  ConditionStatus status = ConditionStatus::kUnknown;
  std::string reason;
  std::string message;
  Timestamp last_update_time;
  Timestamp last_transition_time;

  bool operator==(const PyTorchCondition&) const = default;
};

struct PyTorchReplicaStatus {
  std::int64_t active = 0;
  std::int64_t succeeded = 0;
  std::int64_t failed = 0;
  std::string selector;

  bool operator==(const PyTorchReplicaStatus&) const = default;
};

struct PyTorchJobStatus {
  std::vector<PyTorchCondition> conditions;  // the State of `kubectl get` is the last one's type
  std::map<std::string, PyTorchReplicaStatus> replica_statuses;  // by replica type
  Timestamp start_time;
  Timestamp completion_time;
  Timestamp last_reconcile_time;
  // What a TrainJob's status records and Kubeflow's has no field for: restart counts, progress,
  // failures. Kubeflow's operator and clients ignore it. Where Kubeflow's CRD is installed, the API
  // server drops this field; see controller/cluster/pytorch_status.h.
  TrainJobStatus tilewright;

  bool operator==(const PyTorchJobStatus&) const = default;
};

struct PyTorchJob {
  ObjectMeta metadata;
  PyTorchJobSpec spec;
  PyTorchJobStatus status;

  bool operator==(const PyTorchJob&) const = default;
};

inline constexpr const char* kMasterType = "Master";
inline constexpr const char* kWorkerType = "Worker";
// The port of the rendezvous in that container.
inline constexpr const char* kPyTorchPortName = "pytorchjob-port";
inline constexpr std::int64_t kPyTorchPort = 23456;

// The container named pytorch; nullptr if there is none.
const nlohmann::json* pytorch_container(const PyTorchReplicaSpec& replica);
// The port named pytorchjob-port of the container that trains; kPyTorchPort if there is none.
std::int64_t rendezvous_port(const PyTorchReplicaSpec& replica);

// Whether Kubeflow's operator runs in the cluster, too.
enum class KubeflowOperator { kAbsent, kPresent };
// Whether Tilewright's operator manages the job. Where Kubeflow's operator is absent, jobs without
// managedBy and those that name Kubeflow's are Tilewright's too.
bool is_managed_here(const PyTorchJob& job, KubeflowOperator kubeflow);

}  // namespace tilewright::api
