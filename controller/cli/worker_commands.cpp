#include "controller/cli/worker_commands.h"

#include <fmt/format.h>

#include <iostream>

#include "common/base/exit_codes.h"
#include "common/contract/pod_paths.h"

namespace tilewright {

void add_worker_commands(CLI::App& app, int& exit_code) {
  for (const char* name : {"agent", "bench", "doctor", "eval", "predict", "train"}) {
    CLI::App* command = app.add_subcommand(name)->group("")->allow_extras();
    command->set_help_flag();
    command->callback([&app, &exit_code, name] {
      std::cerr << fmt::format("{0}: {1}: a command of {2}; run {2} {1}\n", app.get_name(), name,
                               kWorkerProgram);
      exit_code = static_cast<int>(ExitCode::kUsage);
    });
  }
}

}  // namespace tilewright
