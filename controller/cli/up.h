// `tilewright up`: runs a TrainJob on this machine, one process per worker.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

// Registers the subcommand, which sets `exit_code`. Both arguments must outlive the parse.
void add_up_command(CLI::App& app, int& exit_code);

}  // namespace tilewright
