// The labels and variables that the operator sets on the pods of a PyTorchJob, as Kubeflow's
// training operator v1 does; the last two variables are its own. The tables in docs/reference.md
// are generated from these.
// Source: github.com/kubeflow/training-operator v1.9, pkg/apis/kubeflow.org/v1/common_types.go and
// pkg/controller.v1/pytorch.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/contract/environment.h"
#include "common/contract/labels.h"
#include "common/contract/table.h"

namespace tilewright::kubeflow {

inline constexpr MetadataKey kLabels[] = {
    {"training.kubeflow.org/operator-name", "pods and Services", "pytorchjob-controller",
     "Name of the controller of PyTorchJobs in Kubeflow's operator."},
    {"training.kubeflow.org/job-name", "pods and Services", "", "Name of the PyTorchJob."},
    {"training.kubeflow.org/replica-type", "pods and Services", "", "`master` or `worker`."},
    {"training.kubeflow.org/replica-index", "pods and Services", "",
     "Index among the replicas of the type."},
    {"training.kubeflow.org/job-role", "one pod", "master",
     "On the master's pod, or on that of the first worker in a job without a master."},
};

inline constexpr const char* kOperatorName =
    find_row(kLabels, "training.kubeflow.org/operator-name").name.data();
inline constexpr const char* kOperatorNameValue = find_row(kLabels, kOperatorName).value.data();
inline constexpr const char* kJobName =
    find_row(kLabels, "training.kubeflow.org/job-name").name.data();
inline constexpr const char* kReplicaType =
    find_row(kLabels, "training.kubeflow.org/replica-type").name.data();
inline constexpr const char* kReplicaIndex =
    find_row(kLabels, "training.kubeflow.org/replica-index").name.data();
inline constexpr const char* kJobRole =
    find_row(kLabels, "training.kubeflow.org/job-role").name.data();
inline constexpr const char* kJobRoleMaster = find_row(kLabels, kJobRole).value.data();

enum class SetIf {
  kAlways,
  kMaster,
  kElasticPolicy,
  kMaxRestarts,
  kRdzvId,
  kRdzvConf,
  kStandalone,
  kOperatorStore,
  kGracePeriod,
};

// For docs/reference.md: "the job has a Master".
constexpr std::string_view describe(SetIf condition) {
  switch (condition) {
    case SetIf::kAlways:
      return "always";
    case SetIf::kMaster:
      return "the job has a Master";
    case SetIf::kElasticPolicy:
      return "`elasticPolicy`";
    case SetIf::kMaxRestarts:
      return "`elasticPolicy.maxRestarts`";
    case SetIf::kRdzvId:
      return "`elasticPolicy.rdzvId`";
    case SetIf::kRdzvConf:
      return "`elasticPolicy.rdzvConf`";
    case SetIf::kStandalone:
      return "`elasticPolicy.standalone`";
    case SetIf::kOperatorStore:
      return "the agents rendezvous through the operator's TCPStore";
    case SetIf::kGracePeriod:
      return "the template sets `terminationGracePeriodSeconds`";
  }
  return "";
}

struct Variable {
  std::string_view name;
  SetIf set_if;
  std::string_view value;
  bool overrides = true;  // the container's own entry of that name
};

// In the order in which a container has them.
inline constexpr Variable kVariables[] = {
    {"PYTHONUNBUFFERED", SetIf::kAlways, "1"},
    {"MASTER_PORT", SetIf::kMaster, "Port `pytorchjob-port` of the Master."},
    {"PET_MASTER_PORT", SetIf::kMaster, "As MASTER_PORT."},
    {"MASTER_ADDR", SetIf::kMaster, "JOB-master-0"},
    {"PET_MASTER_ADDR", SetIf::kMaster, "As MASTER_ADDR."},
    {"WORLD_SIZE", SetIf::kMaster, "Pods, times `nprocPerNode` if that is a number."},
    {"RANK", SetIf::kMaster, "0 for the Master, index + 1 for a Worker."},
    {"PET_NODE_RANK", SetIf::kMaster, "As RANK."},
    {"PET_NPROC_PER_NODE", SetIf::kAlways,
     "`nprocPerNode`, or else `elasticPolicy.nProcPerNode`, or else auto."},
    {"PET_RDZV_ENDPOINT", SetIf::kElasticPolicy,
     "The operator's TCPStore if `rdzvBackend` is c10d, neither `rdzvHost`, `rdzvPort` nor "
     "`standalone` is set, no `restartPolicy` is Never, no pod uses `hostNetwork`, and the "
     "operator's `--pytorchjob_store` is true. Otherwise `rdzvHost`, or else "
     "JOB-worker-0; `rdzvPort`, or else port "
     "`pytorchjob-port` of the Worker."},
    {"PET_RDZV_BACKEND", SetIf::kElasticPolicy, "`rdzvBackend`, or else c10d."},
    {"PET_NNODES", SetIf::kAlways,
     "With `elasticPolicy` minReplicas:maxReplicas, otherwise the pods."},
    {"PET_MAX_RESTARTS", SetIf::kMaxRestarts, "Its value."},
    {"PET_RDZV_ID", SetIf::kRdzvId, "Its value."},
    {"PET_RDZV_CONF", SetIf::kRdzvConf, "key=value,..."},
    {"PET_STANDALONE", SetIf::kStandalone, "1"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", SetIf::kOperatorStore,
     "1, unless the container sets it: the workers of each round then use a separate store.",
     false},
    {"PET_SHUTDOWN_TIMEOUT", SetIf::kGracePeriod,
     "Its value, unless the container sets the variable: otherwise torchrun kills the processes "
     "30 s after SIGTERM.",
     false},
};

consteval const char* variable(std::string_view name) {
  return find_row(kVariables, name).name.data();
}

// Whether the operator sets the variable in the container `pytorch` of some PyTorchJobs.
constexpr bool may_set(std::string_view name) {
  return std::ranges::find(kVariables, name, &Variable::name) != std::end(kVariables) ||
         std::ranges::any_of(env::kVariables, [&](const env::Variable& variable) {
           return variable.name == name && variable.set_by.starts_with("operator");
         });
}

}  // namespace tilewright::kubeflow
