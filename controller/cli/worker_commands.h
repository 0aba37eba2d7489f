#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

// Registers the commands of tilewright-worker, hidden from --help: each says which program has it
// and sets `exit_code` to kUsage. Both arguments must outlive the parse.
void add_worker_commands(CLI::App& app, int& exit_code);

}  // namespace tilewright
