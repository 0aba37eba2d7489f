// Checks a job against a cluster without creating anything (`tilewright validate --cluster`).
#pragma once

#include <string>
#include <vector>

#include "controller/api/trainjob.h"
#include "controller/client/client.h"

namespace tilewright::controller {

struct Preflight {
  std::vector<std::string> errors;   // one sentence each, without a full stop
  std::vector<std::string> unknown;  // checks that failed to run, and why
};

// `tree`: the manifest as JSON. `job`: the same, decoded, validated and defaulted. Checks whether
// the API server accepts the job and its first pod (dry run: admission, quotas, Pod Security),
// whether a node is large enough, and whether the PersistentVolumeClaims exist.
Preflight run_preflight(kube::Client& client, const std::string& namespace_name,
                        const nlohmann::json& tree, const api::TrainJob& job,
                        const net::Wait& wait);

}  // namespace tilewright::controller
