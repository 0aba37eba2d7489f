// Checks a job against a cluster without creating anything (`tilewright validate --cluster`).
#pragma once

#include <string>
#include <vector>

#include "controller/api/trainjob.h"
#include "controller/client/client.h"

namespace tilewright::controller {

struct Preflight {
  bool job_accepted = false;  // by the API server, in a dry run
  // One sentence each, without a full stop.
  std::vector<std::string> errors;  // of the job
  // The checks without a result, and why: the user has no permission, or the request failed.
  std::vector<std::string> not_permitted;
  std::vector<std::string> failed;
};

// `tree`: the manifest as JSON. `job`: the same, decoded, validated and defaulted. Checks whether
// the API server accepts the job and its first pod (dry run: admission, quotas, Pod Security),
// whether a node is large enough, and whether the PersistentVolumeClaims exist.
Preflight run_preflight(kube::Client& client, const std::string& namespace_name,
                        const nlohmann::json& tree, const api::TrainJob& job,
                        const net::Wait& wait);

}  // namespace tilewright::controller
