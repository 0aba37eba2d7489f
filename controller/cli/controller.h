// `tilewright controller`: runs the operator.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

// Registers the subcommand, which sets `exit_code` when it runs. Both arguments must outlive the
// parse.
void add_controller_command(CLI::App& app, int& exit_code);

}  // namespace tilewright
