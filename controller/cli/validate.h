// `tilewright validate`: checks manifests of TrainJobs and PyTorchJobs, and where they can run.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "controller/cli/kubeconfig_options.h"

namespace tilewright {

// Registers the subcommand, which sets `exit_code`. Both arguments must outlive the parse.
void add_validate_command(CLI::App& app, int& exit_code);

struct ClusterOptions {
  KubeconfigOptions connection;
  std::string namespace_name;  // empty: that of the manifest, then that of the kubeconfig
};

// Prints one line per valid job to `out`, errors and warnings to `err`. Returns kManifest if a file
// cannot be read or any job is invalid, else with `cluster` the result of validate_in_cluster().
int validate_files(const std::vector<std::filesystem::path>& files,
                   const std::optional<ClusterOptions>& cluster, std::ostream& out,
                   std::ostream& err);

// Checks the manifests against a cluster. Prints whether the cluster accepts each job, or that it
// was only partly checked because the user has no permission for the rest. Returns kManifest if a
// job is invalid or the cluster would reject it, kPeerLost if the API server gave no usable
// response, kUsage if the kubeconfig cannot be used.
int validate_in_cluster(const std::vector<Input>& manifests, const ClusterOptions& cluster_options,
                        std::ostream& out, std::ostream& err);

}  // namespace tilewright
