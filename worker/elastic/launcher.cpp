#include "worker/elastic/launcher.h"

#include <fmt/format.h>

#include <charconv>

#include "common/contract/environment.h"

namespace tilewright::elastic {

void check_launcher(const Environment& environment) {
  if (!environment(env::kRendezvous).empty()) return;
  for (const char* variable :
       {env::kWorldSize, env::kPmiSize, env::kOmpiCommWorldSize, env::kSlurmStepNumTasks}) {
    const std::string text = environment(variable);
    int processes = 0;  // 0 if the text is no integer: another program's variable
    std::from_chars(text.data(), text.data() + text.size(), processes);
    if (processes <= 1) continue;
    throw Failure(
        ExitCode::kUsage,
        fmt::format("found {}={} without {}: each of the {} processes would train the whole job; "
                    "expected one process on each host, `tilewright-worker agent "
                    "--nproc_per_node=N -- train ...`, which starts the others",
                    variable, processes, env::kRendezvous, processes));
  }
}

}  // namespace tilewright::elastic
