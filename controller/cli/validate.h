// `tilewright validate`: whether manifests are TrainJobs that can run, and where.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iosfwd>
#include <vector>

namespace tilewright {

// Registers the subcommand. When it runs, `exit_code` becomes the program's; both arguments must
// outlive the parse.
void add_validate_command(CLI::App& app, int& exit_code);

// One line a valid file on `out`, the sentences about the others and all warnings on `err`. The
// exit code: kManifest if any file is refused.
int validate_files(const std::vector<std::filesystem::path>& files, std::ostream& out,
                   std::ostream& err);

struct ClusterQuestion {
  std::string kubeconfig;  // these three empty: as kubectl finds them
  std::string context;
  std::string namespace_name;
};

// The same for what a cluster has to say; kUsage where there is no cluster to ask.
int validate_in_cluster(const std::vector<std::filesystem::path>& files,
                        const ClusterQuestion& question, std::ostream& out, std::ostream& err);

}  // namespace tilewright
