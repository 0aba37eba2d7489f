// `tilewright validate`: checks manifests of TrainJobs and PyTorchJobs, and where they can run.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iosfwd>
#include <vector>

namespace tilewright {

// Registers the subcommand, which sets `exit_code`. Both arguments must outlive the parse.
void add_validate_command(CLI::App& app, int& exit_code);

// Prints one line per valid job to `out`, errors and warnings to `err`. Returns kManifest if any job
// is invalid.
int validate_files(const std::vector<std::filesystem::path>& files, std::ostream& out,
                   std::ostream& err);

struct ClusterOptions {
  // The defaults are those of kubectl.
  std::string kubeconfig;
  std::string context;
  bool allow_insecure = false;  // accept insecure-skip-tls-verify in the kubeconfig
  std::string namespace_name;
};

// Checks the files against a cluster. Prints whether the cluster accepts each job, or that it was
// only partly checked because the user has no permission for the rest. Returns kManifest if a job is
// invalid or the cluster would reject it, kPeerLost if the API server gave no usable response,
// kUsage if the kubeconfig cannot be used.
int validate_in_cluster(const std::vector<std::filesystem::path>& files,
                        const ClusterOptions& cluster_options, std::ostream& out,
                        std::ostream& err);

}  // namespace tilewright
