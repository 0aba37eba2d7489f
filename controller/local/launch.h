// Builds the command of a local worker (program, arguments, environment, CPUs) and checks its
// directories.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/host/host.h"
#include "common/process/child_process.h"
#include "controller/api/trainjob.h"
#include "controller/policy/plan.h"

namespace tilewright::local {

struct LaunchConfig {
  std::filesystem::path worker_program;
  std::filesystem::path manifest_folder;  // base of relative `local` paths of volumes
  std::filesystem::path key_file;
  std::string rendezvous;                // host:port
  host::Host host;                       // its CPUs are divided among the workers
  std::vector<std::string> environment;  // of `up` itself: NAME=value
  // The workers replace the content of the output directory, whatever the manifest says.
  bool overwrite_output = false;
};

// The worker's environment is the environment of `up` without the variables that a runtime sets,
// then those variables with the worker's values, then the manifest's variables. Later values
// override earlier ones.
ChildCommand command_for(const api::TrainJob& job, const policy::WorkerCreation& creation,
                         const LaunchConfig& config);

// Why a job cannot start on this machine.
struct FieldProblem {
  ExitCode code = ExitCode::kUsage;
  std::string field;    // spec.trainer.model
  std::string message;  // names volume and directory
};

// Checks that the directories of model and data and the user's own files exist, and creates the
// directory of the output volume. Problems: kModel, kData, kOutput.
std::optional<FieldProblem> prepare_folders(const api::TrainJob& job,
                                            const std::filesystem::path& manifest_folder);

// The UID of the job that owns the output directory; empty if it is this job, if there is none, or
// if the training may use the directory all the same.
std::string foreign_owner(const api::TrainJob& job, const std::filesystem::path& manifest_folder);

// The output directory on this machine.
std::filesystem::path output_folder(const api::TrainJob& job,
                                    const std::filesystem::path& manifest_folder);

// Returns `named` unless it is empty; else `tilewright-worker` in the directory of the running
// program, or in PATH. Error: kUsage, names the places that were searched.
Result<std::filesystem::path> find_worker_program(const std::filesystem::path& named);

}  // namespace tilewright::local
