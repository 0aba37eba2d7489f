// Turns the reasons and messages of scheduler, kubelet and attach-detach controller into the typed
// causes of controller/policy.
#pragma once

#include <optional>
#include <string>

#include "controller/policy/observed.h"

namespace tilewright::cluster {

// Returns why a pod does not start, from the reason and message of its status or of one of its
// events, or std::nullopt if they describe a normal start. `job` is needed only for volumes that
// are attached to another node: the message does not name the PersistentVolumeClaim, so the result
// lists the job's claims.
std::optional<policy::StartProblem> diagnose_start(const std::string& reason,
                                                   const std::string& message,
                                                   const api::TrainJob* job = nullptr);

// Reason of a container that the kernel's OOM killer killed.
inline constexpr const char* kOomKilled = "OOMKilled";

// Classifies the reason of an ended pod or container: out of memory, stopped by the cluster, or,
// for any other reason, a failure of the program.
api::FailureCause diagnose_failure(const std::string& reason);

}  // namespace tilewright::cluster
