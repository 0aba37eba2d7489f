// What a cluster would say to a job, asked before the job is created: nothing is made.
#pragma once

#include <string>
#include <vector>

#include "controller/api/trainjob.h"
#include "controller/kube/client.h"

namespace tilewright::manager {

struct Preflight {
  std::vector<std::string> obstacles;  // a sentence each, without a full stop; empty: none is known
  std::vector<std::string> unknown;    // what could not be asked, and why
};

// `tree` is the manifest as JSON, `job` the same decoded, valid for a cluster and defaulted. Asks
// whether the API server takes the job and its first pod (dry runs: admission, quotas, Pod
// Security), whether some node is large enough, and whether the claims exist.
Preflight ask_cluster(kube::Client& client, const std::string& namespace_name,
                      const nlohmann::json& tree, const api::TrainJob& job, const net::Wait& wait);

}  // namespace tilewright::manager
