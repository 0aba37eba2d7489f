// `tilewright render`: prints the objects that a manifest creates in a cluster as YAML.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "common/base/result.h"

namespace tilewright {

// Registers the subcommand, which sets `exit_code`. Both arguments must outlive the parse.
void add_render_command(CLI::App& app, int& exit_code);

// The objects in the order of their creation, with placeholders for the UID, the suffix of a
// generated name and the job's key. `gang_scheduler`: PodOptions::gang_scheduler. Prints warnings
// to `err`.
Result<std::string> render_file(const std::filesystem::path& path, std::ostream& err,
                                const std::string& rendezvous,
                                const std::string& gang_scheduler = {});

}  // namespace tilewright
