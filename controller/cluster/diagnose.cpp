#include "controller/cluster/diagnose.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/strings.h"
#include "controller/cluster/objects.h"

namespace tilewright::cluster {
namespace {

using policy::StartProblem;
using policy::StartProblemCause;

// Values of a pod's status.reason, of the reason of its DisruptionTarget condition, and of that of
// an ended container.
constexpr std::array<std::string_view, 19> kInfrastructureReasons = {
    "Evicted",
    "Preempted",
    "Preempting",
    "PreemptionByScheduler",
    "PreemptionByKubeScheduler",
    "DisruptionTarget",
    "EvictionByEvictionAPI",
    "DeletionByTaintManager",
    "DeletionByPodGC",
    "TerminationByKubelet",
    "NodeLost",
    "NodeShutdown",
    "NodeAffinity",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "ContainerStatusUnknown",
    "Unknown",  // with exit code 255: containerd after a reboot of the node
};
// A kubelet rejects a pod with this prefix and the name of the resource that its node lacks, such
// as OutOfcpu, OutOfephemeral-storage or OutOfhugepages-2Mi (pkg/kubelet/lifecycle/predicate.go).
constexpr std::string_view kOutOfResourcePrefix = "OutOf";

constexpr std::array<std::string_view, 5> kImageReasons = {"ErrImagePull", "ImagePullBackOff",
                                                           "ErrImageNeverPull", "InvalidImageName",
                                                           "RegistryUnavailable"};

// FailedMount and FailedCreatePodSandBox are event reasons; the others are container status
// reasons.
constexpr std::array<std::string_view, 6> kContainerReasons = {"CreateContainerConfigError",
                                                               "CreateContainerError",
                                                               "RunContainerError",
                                                               "FailedMount",
                                                               "StartError",
                                                               "FailedCreatePodSandBox"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& reasons, const std::string& reason) {
  return std::ranges::find(reasons, reason) != reasons.end();
}

// "a, b and 2 pod(s) in different namespaces" -> {"a", "b and 2 pod(s) in different namespaces"}.
// The second entry is not a pod name, which is harmless: only names of the job's workers matter.
std::vector<std::string> split_pods(const std::string& list) {
  std::vector<std::string> pods;
  for (std::size_t start = 0; start < list.size();) {
    const std::size_t end = std::min(list.find(", ", start), list.size());
    pods.push_back(list.substr(start, end - start));
    start = end + 2;
  }
  return pods;
}

// Parses the attach-detach controller's message about a single-node volume that is still attached
// to another node. The message lists the pods that use the volume; the list is empty if those pods
// are gone but the volume is not detached yet.
std::optional<StartProblem> parse_multi_attach(const std::string& message,
                                               const api::TrainJob* job) {
  constexpr std::string_view kUsedBy = "Volume is already used by ";
  constexpr std::string_view kPods = "pod(s) ";
  const auto volume = substring_between(message, "Multi-Attach error for volume \"", "\"");
  if (!volume || job == nullptr) return std::nullopt;
  StartProblem problem{StartProblemCause::kVolumeOnOtherNode, {}, *volume, {}};
  for (const auto& [claim, name] : claims_of(*job)) problem.claims.push_back(claim);
  if (problem.claims.empty()) return std::nullopt;
  if (const std::size_t used = message.find(kUsedBy); used != std::string::npos) {
    std::string pods = message.substr(used + kUsedBy.size());
    if (pods.starts_with(kPods)) pods.erase(0, kPods.size());
    problem.pods = split_pods(pods);
  }
  return problem;
}

}  // namespace

std::optional<StartProblem> diagnose_start(const std::string& reason, const std::string& message,
                                           const api::TrainJob* job) {
  const auto problem = [](StartProblemCause cause) { return StartProblem{cause, {}, {}, {}}; };
  if (reason == "SchedulingGated") return problem(StartProblemCause::kSchedulingGated);
  if (reason == "FailedAttachVolume") {
    if (auto multi_attach = parse_multi_attach(message, job)) return multi_attach;
    return problem(StartProblemCause::kVolumeNotAttached);
  }
  if (contains(kImageReasons, reason)) return problem(StartProblemCause::kImageNotAvailable);
  if (reason != "Unschedulable" && !contains(kContainerReasons, reason)) return std::nullopt;
  // Messages of the scheduler's volume plugins.
  if (const auto claim = substring_between(message, "persistentvolumeclaim \"", "\" not found")) {
    return StartProblem{StartProblemCause::kClaimNotFound, {*claim}, {}, {}};
  }
  if (message.find("ReadWriteOncePod access mode") != std::string::npos) {
    return problem(StartProblemCause::kClaimUsedByPod);
  }
  return problem(reason == "Unschedulable" ? StartProblemCause::kUnschedulable
                                           : StartProblemCause::kContainerNotStarted);
}

api::FailureCause diagnose_failure(const std::string& reason) {
  if (reason == kOomKilled) return api::FailureCause::kOutOfMemory;
  return reason.starts_with(kOutOfResourcePrefix) || contains(kInfrastructureReasons, reason)
             ? api::FailureCause::kInfrastructure
             : api::FailureCause::kProgram;
}

}  // namespace tilewright::cluster
