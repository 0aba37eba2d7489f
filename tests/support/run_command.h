// A command run to its end, with what it printed.
#pragma once

#include <chrono>
#include <string>

#include "common/process/child_process.h"

namespace tilewright::testing {

struct CommandOutcome {
  int exit_code = 0;
  std::string output;  // standard output and, unless the two are separate, standard error
  std::string error;
};

// Throws std::runtime_error when the command does not start, or does not end in time.
CommandOutcome run_command(const ChildCommand& command,
                           std::chrono::seconds patience = std::chrono::seconds(120));

}  // namespace tilewright::testing
