// The command line of a worker and the variables it may name: the same in a pod and under
// `tilewright up`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

using PathResolver = std::function<std::string(const TrainerPath&)>;

// tilewright-worker train --task_name=... ARGS..., or with several processes a pod
// tilewright-worker agent --nproc_per_node=N -- train ...; $(VAR) is not expanded yet: the kubelet
// does that for pods, expand_command() here. The job must be valid and defaulted.
std::vector<std::string> worker_command(const TrainJob& job, const PathResolver& resolve);

// Each word expanded.
std::vector<std::string> expand_command(std::vector<std::string> command,
                                        const Environment& variables);

// What the runtime tells a worker about itself.
struct WorkerSetting {
  std::string rendezvous;  // host:port
  std::string job_key_file;
  std::int64_t index = 0;
};

// The runtime's own variables, then the manifest's, in the order in which they expand; values not
// expanded yet. Variables with valueFrom are left out.
std::vector<std::pair<std::string, std::string>> worker_environment(const TrainJob& job,
                                                                    const WorkerSetting& setting);

// What the runtime sets itself, so that a manifest may not.
std::span<const char* const> runtime_variables();
bool is_runtime_variable(std::string_view name);

}  // namespace tilewright::api
