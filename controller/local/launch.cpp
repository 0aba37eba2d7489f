#include "controller/local/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "common/base/files.h"
#include "common/base/strings.h"
#include "common/contract/output_owner.h"
#include "common/contract/pod_paths.h"
#include "common/contract/training_checks.h"
#include "common/host/cpu_plan.h"
#include "common/json/members.h"
#include "controller/api/command.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/policy/elasticity.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

// A path below /mnt/tilewright/VOLUME, where a pod has the volume, becomes one of this machine.
std::string localized(const api::TrainJob& job, const fs::path& manifest_folder,
                      const std::string& value) {
  const std::string root = std::string(kVolumeRoot) + "/";
  if (!value.starts_with(root)) return value;
  const std::size_t end = std::min(value.find('/', root.size()), value.size());
  const std::string volume = value.substr(root.size(), end - root.size());
  const auto found = std::ranges::find(job.spec.volumes, volume, &api::Volume::name);
  if (found == job.spec.volumes.end() || !found->local) return value;
  return api::local_path(job, manifest_folder,
                         {volume, value.substr(std::min(end + 1, value.size()))});
}

api::Environment worker_variables(const api::TrainJob& job, const LaunchConfig& config, int index) {
  auto list = api::worker_environment(job, {config.rendezvous, config.key_file.string(), index});
  for (auto& [name, value] : list) value = localized(job, config.manifest_folder, value);
  return api::expand_environment(list);
}

// Resolves VOLUME:path of a manifest to a directory on this machine and expands variables. All
// workers share the directory, so the variables do not include the worker's index.
fs::path local_folder(const api::TrainJob& job, const fs::path& manifest_folder,
                      const std::string& text) {
  const Result<api::TrainerPath> path = api::parse_trainer_path(text);
  TW_CHECK(path.ok(), "validate() accepted an invalid path: {}", path.error().message);
  const api::Environment variables =
      api::expand_environment(api::worker_environment(job, {"", "", 0}));
  return api::expand(api::local_path(job, manifest_folder, *path), variables);
}

// That the directory or file exists, if the field names one.
std::optional<FieldProblem> check_exists(const api::TrainJob& job, const fs::path& manifest_folder,
                                         const std::string& field, const std::string& text,
                                         ExitCode code) {
  if (!api::is_trainer_path(text)) return std::nullopt;  // a name on the hub, or not set
  const fs::path folder = local_folder(job, manifest_folder, text);
  std::error_code error;
  if (fs::exists(folder, error)) return std::nullopt;
  return FieldProblem{code, field,
                      fmt::format("{}: {} does not exist on this machine", text, folder.string())};
}

// With the actions and, as far as the flags tell it, the task of the worker.
TrainingSettings resolved_settings(const api::TrainJob& job) {
  const Result<TrainingArguments> arguments = api::training_arguments(job);
  TW_CHECK(arguments.ok(), "validate() accepted an invalid flag: {}", arguments.error().message);
  TrainingSettings settings = arguments->settings();
  resolve_actions(*arguments, settings);
  infer_question_answering(*arguments, settings);
  return settings;
}

// The processes that the worker starts on its CPUs: its agent plans `auto` in the same way.
int processes_of(const api::ProcessCount& count, host::Host host,
                 const std::vector<int>& worker_cpus) {
  if (!count.automatic) return static_cast<int>(count.number);
  host.allowed = worker_cpus;
  return static_cast<int>(host::plan_cpus(host, std::nullopt).processes.size());
}

}  // namespace

ChildCommand command_for(const api::TrainJob& job, const policy::WorkerCreation& creation,
                         const LaunchConfig& config) {
  const api::Environment variables = worker_variables(job, config, creation.index);
  ChildCommand command;
  command.program = config.worker_program;
  command.arguments = api::expand_command(
      api::worker_command(job,
                          [&](const api::TrainerPath& path) {
                            return api::local_path(job, config.manifest_folder, path);
                          }),
      variables);
  command.arguments.erase(command.arguments.begin());  // the program's path in the image
  if (config.overwrite_output) command.arguments.emplace_back("--overwrite_output_dir=true");
  for (const std::string& variable : config.environment) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    if (!api::is_runtime_variable(name) && !variables.contains(name)) {
      command.environment.push_back(variable);
    }
  }
  for (const auto& [name, value] : variables) {
    command.environment.push_back(fmt::format("{}={}", name, value));
  }
  const host::CpuPlan plan = host::plan_cpus(config.host, policy::sizes_of(job).desired);
  const host::ProcessPlan& own = plan.of(creation.index);
  command.cpus = own.cpus;
  if (plan.processes.size() > 1 && own.thread_cpus.empty() &&
      !job.spec.trainer.flags.contains("threads")) {
    // The worker sees the CPUs and the quota of all workers, not its share.
    const int processes = processes_of(job.spec.nproc_per_node.value(), config.host, own.cpus);
    command.arguments.push_back(fmt::format("--threads={}", std::max(1, own.threads / processes)));
  }
  return command;
}

std::optional<FieldProblem> prepare_folders(const api::TrainJob& job,
                                            const fs::path& manifest_folder) {
  const api::Trainer& trainer = job.spec.trainer;
  if (auto missing = check_exists(job, manifest_folder, "spec.trainer.model", trainer.model,
                                  ExitCode::kModel)) {
    return missing;
  }
  if (auto missing =
          check_exists(job, manifest_folder, "spec.trainer.data", trainer.data, ExitCode::kData)) {
    return missing;
  }
  const TrainingSettings settings = resolved_settings(job);
  for (const auto& [flag, path] : files_to_read(settings)) {
    if (auto missing = check_exists(job, manifest_folder, fmt::format("spec.trainer.{}", flag),
                                    std::string(path), ExitCode::kData)) {
      return missing;
    }
  }
  // The worker creates the output directory inside the volume when it writes to it.
  const Result<api::TrainerPath> output = api::parse_trainer_path(trainer.output);
  TW_CHECK(output.ok(), "validate() accepted an invalid path: {}", trainer.output);
  const fs::path volume = api::local_path(job, manifest_folder, {output->volume, ""});
  std::error_code error;
  fs::create_directories(volume, error);
  if (!error && access(volume.c_str(), W_OK) == 0) return std::nullopt;
  return FieldProblem{
      ExitCode::kOutput, "spec.trainer.output",
      fmt::format("the volume {}: {} is not writable on this machine{}", output->volume,
                  volume.string(), error ? ": " + error.message() : "")};
}

std::string foreign_owner(const api::TrainJob& job, const fs::path& manifest_folder) {
  const TrainingSettings settings = resolved_settings(job);
  // A training from a checkpoint of the directory continues there.
  if (!settings.do_train || settings.overwrite_output_dir ||
      !settings.resume_from_checkpoint.empty()) {
    return "";
  }
  constexpr std::uint64_t kMaxMarkerBytes = 1 << 20;
  const Result<std::string> text =
      read_file(output_folder(job, manifest_folder) / kOwnershipMarkerFile, kMaxMarkerBytes,
                ExitCode::kOutput);
  if (!text.ok()) return "";  // the worker says why, unless there is none
  const std::string owner =
      string_member(nlohmann::json::parse(*text, nullptr, false), kOwnerUidField);
  return owner == job.metadata.uid ? "" : owner;
}

fs::path output_folder(const api::TrainJob& job, const fs::path& manifest_folder) {
  return local_folder(job, manifest_folder, job.spec.trainer.output);
}

Result<fs::path> find_worker_program(const fs::path& named) {
  if (!named.empty()) {
    if (is_program(named)) return fs::absolute(named).lexically_normal();
    return Error{ExitCode::kUsage,
                 fmt::format("--worker_binary: {} is not an executable file", named.string())};
  }
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (is_program(own / kWorkerProgram)) return own / kWorkerProgram;
  const auto found = find_program(kWorkerProgram, environment_variable("PATH"));
  if (found) return *found;
  return Error{ExitCode::kUsage,
               fmt::format("{} is neither in {}, next to this program, nor in PATH; set it with "
                           "--worker_binary",
                           kWorkerProgram, own.string())};
}

}  // namespace tilewright::local
