// `tilewright render`: the objects that a manifest would create in a cluster, as YAML.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace tilewright {

// Registers the subcommand. When it runs, `exit_code` becomes the program's; both arguments must
// outlive the parse.
void add_render_command(CLI::App& app, int& exit_code);

// Documents in the order of creation, with placeholders for what only the cluster knows: the UID, a
// generated name's last letters, the job's key.
Result<std::string> render_file(const std::filesystem::path& file, const std::string& rendezvous);

}  // namespace tilewright
