// Runs a command to completion and captures its output.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "common/process/child_process.h"

namespace tilewright::testing {

struct CommandResult {
  int exit_code = 0;
  std::string output;  // standard output and, unless the two are separate, standard error
  std::string error;
};

// Throws std::runtime_error if the command does not start or exceeds its timeout.
CommandResult run_command(const ChildCommand& command,
                          std::chrono::seconds timeout = std::chrono::seconds(120));

// Runs bash with the options -euc, in this process's environment with these variables.
CommandResult run_script(const std::string& script,
                         const std::map<std::string, std::string>& variables = {},
                         std::chrono::seconds timeout = std::chrono::seconds(120));

}  // namespace tilewright::testing
