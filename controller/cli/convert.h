// `tilewright convert`: makes TrainJobs of PyTorchJobs.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "common/base/result.h"

namespace tilewright {

// Registers the subcommand, which sets `exit_code`. Both arguments must outlive the parse.
void add_convert_command(CLI::App& app, int& exit_code);

// The TrainJobs of all PyTorchJobs in the manifest, as YAML documents. Names other documents and
// lost outputs in `err`.
// Error: kManifest, with one sentence per line.
Result<std::string> convert_file(const std::filesystem::path& path, std::ostream& err);

}  // namespace tilewright
