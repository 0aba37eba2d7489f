// The trainer block: task, paths on volumes, flags that must agree, free args.
#include <algorithm>

#include "common/contract/environment.h"
#include "common/contract/nearest.h"
#include "common/contract/training_flags.h"
#include "controller/api/command.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {
namespace {

// The variables as a worker will have them. A name that is yet to be generated, the UID and the
// index are stood in for by texts of the same kind.
Environment likely_environment(const TrainJob& job) {
  TrainJob likely = job;
  if (likely.metadata.name.empty()) likely.metadata.name = job.metadata.generate_name + "xxxxx";
  if (likely.metadata.uid.empty()) likely.metadata.uid = "00000000-0000-0000-0000-000000000000";
  Environment variables;
  for (const auto& [name, value] : worker_environment(likely, {"127.0.0.1:1", "/key", 0})) {
    // A value that hangs on a variable with valueFrom is unknown before the pod starts.
    if (unknown_references(value, variables).empty()) variables[name] = expand(value, variables);
  }
  return variables;
}

const Volume* find_volume(const TrainJob& job, std::string_view name) {
  for (const Volume& volume : job.spec.volumes) {
    if (volume.name == name) return &volume;
  }
  return nullptr;
}

std::string volume_names(const TrainJob& job) {
  std::string names;
  for (const Volume& volume : job.spec.volumes) {
    names += (names.empty() ? "" : ", ") + volume.name;
  }
  return names.empty() ? "spec.volumes has none" : names;
}

class PathJudge {
 public:
  PathJudge(const TrainJob& job, Judge& judge)
      : job_(job), judge_(judge), variables_(likely_environment(job)) {}

  void check(const std::string& field, const std::string& written, bool output) {
    const std::string path = "spec.trainer." + field;
    if (written.empty()) {
      return judge_.refuse(path, "found nothing, expected VOLUME:relative/path");
    }
    const Result<TrainerPath> unexpanded = parse_trainer_path(written);
    if (!unexpanded.ok()) return judge_.refuse(path, unexpanded.error().message);
    if (const auto unknown = unknown_references(written, variables_); !unknown.empty()) {
      return judge_.refuse(
          path, fmt::format("found $({}), which no plain value of spec.worker.env sets, expected a "
                            "variable such as $({})",
                            shown(unknown.front()), env::kJobName));
    }
    const std::string text = expand(written, variables_);
    const Result<TrainerPath> parsed = parse_trainer_path(text);
    if (!parsed.ok() || parsed->volume != unexpanded->volume) {
      return judge_.refuse(
          path, parsed.ok()
                    ? fmt::format("found {}, expected a volume's plain name", shown(written))
                    : parsed.error().message);
    }
    check_volume(path, *parsed, output);
  }

 private:
  void check_volume(const std::string& path, const TrainerPath& parsed, bool output) {
    const Volume* volume = find_volume(job_, parsed.volume);
    if (volume == nullptr) {
      return judge_.refuse(path,
                           fmt::format("found the volume {}, expected one of spec.volumes ({})",
                                       shown(parsed.volume), volume_names(job_)));
    }
    if (!output) return;
    if (parsed.relative.find_first_not_of("./") == std::string::npos) {
      judge_.refuse(path,
                    fmt::format("found {}:{}, expected a folder on the volume, not the volume "
                                "itself",
                                parsed.volume, parsed.relative));
    }
    if (is_read_only(*volume)) {
      judge_.refuse(path,
                    fmt::format("found the volume {}, which is read-only, expected one that can "
                                "be written",
                                parsed.volume));
    }
  }

  const TrainJob& job_;
  Judge& judge_;
  Environment variables_;
};

// --name=value words of known flags are held to the table; others are the worker's to judge, which
// may be of another version.
void validate_args(const TrainJob& job, Judge& judge) {
  const std::vector<std::string>& args = job.spec.trainer.args;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string path = element_path("spec.trainer.args", i);
    if (args[i].find('\0') != std::string::npos) {
      judge.refuse(path, "found a zero byte, expected a word of a command line");
      continue;
    }
    if (!args[i].starts_with("--")) continue;
    const std::string name = args[i].substr(2, args[i].find('=') - 2);
    const TrainingFlag* flag = find_training_flag(name);
    if (flag == nullptr) continue;
    judge.refuse(path,
                 flag->set_by_runtime
                     ? fmt::format("found --{}, expected nothing: the runtime sets it", name)
                     : fmt::format("found --{}, expected the field spec.trainer.{}", name, name));
  }
}

}  // namespace

void validate_trainer(const TrainJob& job, Judge& judge) {
  const Trainer& trainer = job.spec.trainer;
  const Result<std::string> task = normalise_flag(*find_training_flag("task_name"), trainer.task);
  if (!task.ok()) {
    std::string message = task.error().message;
    const std::string_view near =
        nearest_name(trainer.task, find_training_flag("task_name")->choices);
    if (!near.empty()) message += fmt::format("; did you mean {}?", near);
    judge.refuse("spec.trainer.task", message);
  }
  PathJudge paths(job, judge);
  paths.check("model", trainer.model, false);
  paths.check("data", trainer.data, false);
  paths.check("output", trainer.output, true);
  if (const std::string from = flag_value(job, "resume_from_checkpoint"); !from.empty()) {
    paths.check("resume_from_checkpoint", from, false);
  }
  if (flag_value(job, "do_train") == "false" && flag_value(job, "do_eval") == "false") {
    judge.refuse("spec.trainer.do_train",
                 "found do_train and do_eval false, expected at least one of them true");
  }
  validate_args(job, judge);
}

}  // namespace tilewright::api
