// Reads one or several kubeconfig files. As in kubectl, the first file that defines a name wins.
#pragma once

#include <filesystem>
#include <vector>

#include "controller/client/config.h"

namespace tilewright::kube {

// Uses sources.context, or the first current-context of `files`. Errors have code kUsage, name
// file, line and field, and contain no secret.
Result<ClusterConfig> config_from_kubeconfig(const std::vector<std::filesystem::path>& files,
                                             const ConfigSources& sources);

}  // namespace tilewright::kube
