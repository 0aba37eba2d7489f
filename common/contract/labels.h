// Group, version, labels and annotations under which the objects of a job are found.
#pragma once

namespace tilewright {

inline constexpr const char* kApiGroup = "tilewright.dev";
inline constexpr const char* kApiVersion = "tilewright.dev/v1alpha1";
inline constexpr const char* kTrainJobKind = "TrainJob";
inline constexpr const char* kTrainJobPlural = "trainjobs";

namespace labels {
inline constexpr const char* kJobName = "tilewright.dev/job-name";
inline constexpr const char* kJobUid = "tilewright.dev/job-uid";
inline constexpr const char* kWorkerIndex = "tilewright.dev/worker-index";
inline constexpr const char* kRole = "tilewright.dev/role";  // kRoleWorker
inline constexpr const char* kRoleWorker = "worker";
inline constexpr const char* kManagedBy = "app.kubernetes.io/managed-by";
inline constexpr const char* kManagedByValue = "tilewright";
inline constexpr const char* kAppName = "app.kubernetes.io/name";
inline constexpr const char* kAppNameValue = "tilewright-worker";
}  // namespace labels

namespace annotations {
// Of a worker's pod: the generation of the job that it was made from.
inline constexpr const char* kJobGeneration = "tilewright.dev/job-generation";
// And which key of the job it was given.
inline constexpr const char* kKeyId = "tilewright.dev/key-id";
}  // namespace annotations

// How gang schedulers find the PodGroup of a pod.
namespace gang {
inline constexpr const char* kVolcanoAnnotation = "scheduling.k8s.io/group-name";
inline constexpr const char* kSchedulerPluginsLabel = "scheduling.x-k8s.io/pod-group";
}  // namespace gang

// The name of the worker's container in its pod, as `kubectl logs -c` wants it.
inline constexpr const char* kWorkerContainer = "worker";
// What pod names hold between the job's name and the index: mrpc-worker-0.
inline constexpr const char* kWorkerInfix = "-worker-";

}  // namespace tilewright
