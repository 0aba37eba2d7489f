// `tilewright up`: a TrainJob on this machine, worker processes in place of pods.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

// Registers the subcommand. When it runs, `exit_code` becomes the program's; both arguments must
// outlive the parse.
void add_up_command(CLI::App& app, int& exit_code);

}  // namespace tilewright
