// What to run for a worker of a local job: program, arguments, environment, CPUs; and whether the
// folders it names are there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/process/child_process.h"
#include "controller/api/trainjob.h"
#include "controller/reconcile/plan.h"

namespace tilewright::local {

struct LaunchSetting {
  std::filesystem::path worker_program;
  std::filesystem::path manifest_folder;  // what the volumes' local sides are relative to
  std::filesystem::path key_file;
  std::string rendezvous;                // host:port
  std::vector<int> cpus;                 // to be shared out among the workers
  std::vector<std::string> environment;  // of `up` itself: NAME=value
};

// The worker's environment is that of `up`, without the variables that a runtime sets, then these,
// then the manifest's.
ChildCommand command_for(const api::TrainJob& job, const reconcile::WorkerCreation& creation,
                         const LaunchSetting& setting);

// The model's and the data's folders must be there (kModel, kData; one sentence that names field,
// volume and folder); the output volume's is made (kOutput).
Status prepare_folders(const api::TrainJob& job, const std::filesystem::path& manifest_folder);

// Where the output goes on this machine.
std::filesystem::path output_folder(const api::TrainJob& job,
                                    const std::filesystem::path& manifest_folder);

// `tilewright-worker` beside the running program, else in PATH, unless the user names one. An Error
// (kUsage) says where it was looked for.
Result<std::filesystem::path> find_worker_program(const std::filesystem::path& named);

}  // namespace tilewright::local
