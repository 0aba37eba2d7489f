// API group, labels and annotations of the objects that belong to a job. The tables in
// docs/reference.md are generated from these.
#pragma once

#include <string_view>

#include "common/contract/table.h"

namespace tilewright {

inline constexpr const char* kApiGroup = "tilewright.dev";
inline constexpr const char* kApiVersion = "tilewright.dev/v1alpha1";
inline constexpr const char* kTrainJobKind = "TrainJob";
inline constexpr const char* kTrainJobPlural = "trainjobs";

// The PyTorchJob of Kubeflow's training operator v1.
inline constexpr const char* kKubeflowGroup = "kubeflow.org";
inline constexpr const char* kPyTorchJobApiVersion = "kubeflow.org/v1";
inline constexpr const char* kPyTorchJobKind = "PyTorchJob";
inline constexpr const char* kPyTorchJobPlural = "pytorchjobs";
// Values of spec.runPolicy.managedBy.
inline constexpr const char* kPyTorchJobManager = "tilewright.dev/operator";
inline constexpr const char* kKubeflowManager = "kubeflow.org/training-operator";

// A label or an annotation. The operator sets all of them.
struct MetadataKey {
  std::string_view name;
  std::string_view objects;  // the objects that carry it
  std::string_view value;    // the constant value; empty: it varies
  std::string_view meaning;
};

namespace labels {

inline constexpr MetadataKey kLabels[] = {
    {"tilewright.dev/job-name", "all objects of a job", "", "Name of the TrainJob or PyTorchJob."},
    {"tilewright.dev/job-uid", "all objects of a job", "", "UID of the TrainJob or PyTorchJob."},
    {"tilewright.dev/worker-index", "worker pods", "",
     "Index of the worker, 0 to maxReplicas - 1."},
    {"tilewright.dev/role", "worker pods", "worker", "Role of the pod in its job."},
    {"app.kubernetes.io/managed-by", "all objects of a job, the rendezvous EndpointSlice",
     "tilewright", "Marks the objects that the operator lists and watches."},
    {"app.kubernetes.io/name", "all objects of a TrainJob", "tilewright-worker",
     "Name of the application."},
    {"scheduling.x-k8s.io/pod-group", "worker pods of a gang", "",
     "Name of the PodGroup, for the coscheduling plugin of scheduler-plugins."},
};

inline constexpr const char* kJobName = find_row(kLabels, "tilewright.dev/job-name").name.data();
inline constexpr const char* kJobUid = find_row(kLabels, "tilewright.dev/job-uid").name.data();
inline constexpr const char* kWorkerIndex =
    find_row(kLabels, "tilewright.dev/worker-index").name.data();
inline constexpr const char* kRole = find_row(kLabels, "tilewright.dev/role").name.data();
inline constexpr const char* kRoleWorker = find_row(kLabels, kRole).value.data();
inline constexpr const char* kManagedBy =
    find_row(kLabels, "app.kubernetes.io/managed-by").name.data();
inline constexpr const char* kManagedByValue = find_row(kLabels, kManagedBy).value.data();
inline constexpr const char* kAppName = find_row(kLabels, "app.kubernetes.io/name").name.data();
inline constexpr const char* kAppNameValue = find_row(kLabels, kAppName).value.data();

}  // namespace labels

namespace annotations {

inline constexpr MetadataKey kAnnotations[] = {
    {"tilewright.dev/job-generation", "worker pods", "",
     "`metadata.generation` of the job from which the pod was built."},
    {"tilewright.dev/key-id", "worker pods", "",
     "ID of the job key in the Secret that the pod mounts."},
    {"tilewright.dev/tcpstore", "pods of an elastic PyTorchJob", "",
     "Address of the operator's TCPStore, through which torchrun's agents of the job rendezvous."},
    {"scheduling.k8s.io/group-name", "worker pods of a gang", "",
     "Name of the PodGroup, for Volcano."},
    {"volcano.sh/task-spec", "pods of a PyTorchJob's gang", "",
     "Replica type of the pod, for Volcano."},
};

inline constexpr const char* kJobGeneration =
    find_row(kAnnotations, "tilewright.dev/job-generation").name.data();
inline constexpr const char* kKeyId = find_row(kAnnotations, "tilewright.dev/key-id").name.data();
inline constexpr const char* kTcpStore =
    find_row(kAnnotations, "tilewright.dev/tcpstore").name.data();

}  // namespace annotations

// Keys under which gang schedulers find the name of a pod's PodGroup.
namespace gang {
inline constexpr const char* kVolcanoAnnotation =
    find_row(annotations::kAnnotations, "scheduling.k8s.io/group-name").name.data();
inline constexpr const char* kVolcanoTaskAnnotation =
    find_row(annotations::kAnnotations, "volcano.sh/task-spec").name.data();
inline constexpr const char* kSchedulerPluginsLabel =
    find_row(labels::kLabels, "scheduling.x-k8s.io/pod-group").name.data();
}  // namespace gang

// The name of the worker's container in its pod, for `kubectl logs -c`.
inline constexpr const char* kWorkerContainer = "worker";
// Separates the job's name from the index in a pod's name: mrpc-worker-0.
inline constexpr const char* kWorkerInfix = "-worker-";
inline constexpr const char* kMasterInfix = "-master-";

}  // namespace tilewright
