// The labels and variables that the operator sets on the pods of a PyTorchJob, as Kubeflow's
// training operator v1 does; the last two variables are its own. The tables in docs/reference.md are
// generated from these.
// Source: github.com/kubeflow/training-operator v1.9, pkg/apis/kubeflow.org/v1/common_types.go and
// pkg/controller.v1/pytorch.
#pragma once

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

struct Variable {
  std::string_view name;
  std::string_view set_if;  // empty: always
  std::string_view value;
};

// In the order in which a container has them.
inline constexpr Variable kVariables[] = {
    {"PYTHONUNBUFFERED", "", "1"},
    {"MASTER_PORT", "the job has a Master", "Port `pytorchjob-port` of the Master."},
    {"PET_MASTER_PORT", "the job has a Master", "As MASTER_PORT."},
    {"MASTER_ADDR", "the job has a Master", "JOB-master-0"},
    {"PET_MASTER_ADDR", "the job has a Master", "As MASTER_ADDR."},
    {"WORLD_SIZE", "the job has a Master", "Pods, times `nprocPerNode` if that is a number."},
    {"RANK", "the job has a Master", "0 for the Master, index + 1 for a Worker."},
    {"PET_NODE_RANK", "the job has a Master", "As RANK."},
    {"PET_NPROC_PER_NODE", "", "`nprocPerNode`, or else `elasticPolicy.nProcPerNode`."},
    {"PET_RDZV_ENDPOINT", "`elasticPolicy`",
     "The operator's TCPStore if `rdzvBackend` is c10d, neither `rdzvHost`, `rdzvPort` nor "
     "`standalone` is set, no `restartPolicy` is Never, no pod uses `hostNetwork`, and the "
     "operator's `--pytorchjob_store` is true. Otherwise `rdzvHost`, or else "
     "JOB-worker-0; `rdzvPort`, or else port "
     "`pytorchjob-port` of the Worker."},
    {"PET_RDZV_BACKEND", "`elasticPolicy`", "`rdzvBackend`, or else c10d."},
    {"PET_NNODES", "", "With `elasticPolicy` minReplicas:maxReplicas, otherwise the pods."},
    {"PET_MAX_RESTARTS", "`elasticPolicy.maxRestarts`", "Its value."},
    {"PET_RDZV_ID", "`elasticPolicy.rdzvId`", "Its value."},
    {"PET_RDZV_CONF", "`elasticPolicy.rdzvConf`", "key=value,..."},
    {"PET_STANDALONE", "`elasticPolicy.standalone`", "1"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "the agents rendezvous through the operator's TCPStore",
     "1, unless the container sets it: the workers of each round then use a separate store."},
    {"PET_SHUTDOWN_TIMEOUT", "the template sets `terminationGracePeriodSeconds`",
     "Its value, unless the container sets the variable: otherwise torchrun kills the processes "
     "30 s after SIGTERM."},
};

consteval const char* variable(std::string_view name) {
  return find_row(kVariables, name).name.data();
}

}  // namespace tilewright::kubeflow
