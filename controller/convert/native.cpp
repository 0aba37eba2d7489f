#include "controller/convert/native.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "common/base/strings.h"
#include "common/contract/pod_paths.h"
#include "common/contract/training_checks.h"
#include "common/json/members.h"
#include "common/launch/unknown_value.h"
#include "controller/api/defaults.h"
#include "controller/api/training_container.h"
#include "controller/convert/source.h"

namespace tilewright::convert {
namespace {

class NativeChecker {
 public:
  NativeChecker(const api::PyTorchJob& job, const Positions& positions)
      : job_(job), positions_(positions) {}

  void check(const api::PyTorchReplicaSpec& replica, const char* type) {
    const api::TrainingContainer container(job_.spec, replica, member_path(kReplicaSpecs, type));
    const bool in_image = has_worker_image(container.json());
    if (in_image && starts_worker(container)) {
      result_.starts_worker = true;
      return;
    }
    const std::size_t before = result_.errors.size();
    const Result<api::Training> training = container.training();
    if (!training.ok()) {
      error(place_of(container, training.error().message), training.error().message);
    } else {
      check_training(container, *training);
    }
    result_.fails = result_.fails || (in_image && result_.errors.size() > before);
  }

  NativeCheck take(std::string summary) {
    if (result_.errors.empty()) result_.summary = std::move(summary);
    return std::move(result_);
  }

 private:
  static bool starts_worker(const api::TrainingContainer& container) {
    const nlohmann::json& command = member(container.json(), "command");
    if (!command.is_array() || command.empty()) return true;
    if (container.words().empty()) return false;  // the decoder has reported the word
    const std::filesystem::path program(container.words().front().text);
    return program.filename() == kWorkerProgram;
  }

  // "--seed: found x" is about the word with --seed.
  static std::string place_of(const api::TrainingContainer& container, std::string_view message) {
    if (!message.starts_with("--")) return container.path() + ".command";
    message.remove_prefix(2);
    return container.path_of_flag(std::string(message.substr(0, message.find_first_of(":= "))));
  }

  static bool is_unknown(const TrainingArguments& arguments, std::string_view name) {
    const TrainingFlag* flag = find_training_flag(name);
    return flag != nullptr && flag->works() &&
           !launch::unknown_variable(setting_value(arguments.settings(), *flag)).empty();
  }

  void check_training(const api::TrainingContainer& container, const api::Training& training) {
    const api::GivenProcesses processes =
        api::given_processes(job_.spec, container, training.command);
    if (const std::string problem = processes.problem(); !problem.empty()) {
      error(processes.path, problem);
    }
    for (const FlagProblem& problem : check_flags(training.arguments)) {
      if (is_unknown(training.arguments, problem.flag)) continue;  // the worker checks it
      error(container.path_of_flag(std::string(problem.flag)), problem.sentence());
    }
  }

  void error(const std::string& path, std::string message) {
    add_error(result_.errors, {path, positions_.line_of(path), std::move(message)});
  }

  const api::PyTorchJob& job_;
  const Positions& positions_;
  NativeCheck result_;
};

std::string summary_of(const api::PyTorchJob& job) {
  const MainReplica main(job);
  const api::TrainingContainer container(job.spec, main.spec, main.path);
  const Result<api::Training> training = container.training();
  if (!training.ok()) return "";
  const std::int64_t pods =
      (job.spec.worker ? *job.spec.worker->replicas : 0) + (job.spec.master ? 1 : 0);
  return fmt::format("{} on {}",
                     std::filesystem::path(training->command.script).filename().string(),
                     counted(static_cast<std::size_t>(pods), "worker"));
}

}  // namespace

bool has_worker_image(const nlohmann::json& container) {
  std::string image = string_member(container, "image");
  image = image.substr(0, image.find('@'));
  image = image.substr(image.rfind('/') + 1);
  return image.substr(0, image.find(':')) == kWorkerProgram;
}

NativeCheck check_native(const api::PyTorchJob& written, const Positions& positions) {
  api::PyTorchJob job = written;
  api::apply_defaults(job);
  NativeChecker checker(job, positions);
  if (job.spec.master) checker.check(*job.spec.master, api::kMasterType);
  if (job.spec.worker) checker.check(*job.spec.worker, api::kWorkerType);
  return checker.take(summary_of(job));
}

}  // namespace tilewright::convert
