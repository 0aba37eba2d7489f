// `tilewright controller`: the operator, in the cluster or beside it.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

// Registers the subcommand. When it runs, `exit_code` becomes the program's; both arguments must
// outlive the parse.
void add_controller_command(CLI::App& app, int& exit_code);

}  // namespace tilewright
