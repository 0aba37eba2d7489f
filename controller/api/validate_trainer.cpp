// Checks spec.trainer: task, paths on volumes, flags and args.
#include <algorithm>

#include "common/contract/environment.h"
#include "common/contract/nearest.h"
#include "common/contract/training_flags.h"
#include "controller/api/command.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

// The variables of a worker. Placeholders stand for a generated name, the UID and the index, which
// are not known yet.
Environment sample_environment(const TrainJob& job, FindingCollector& collector) {
  TrainJob sample = job;
  if (sample.metadata.name.empty()) sample.metadata.name = job.metadata.generate_name + "xxxxx";
  if (sample.metadata.uid.empty()) sample.metadata.uid = "00000000-0000-0000-0000-000000000000";
  Environment variables;
  std::size_t total = 0;
  for (const auto& [name, value] : worker_environment(sample, {"127.0.0.1:1", "/key", 0})) {
    // The value of a variable with valueFrom is not known before the pod starts.
    if (!unknown_references(value, variables).empty()) continue;
    std::string expanded = expand(value, variables);
    total += name.size() + expanded.size();
    if (expanded.size() > kMaxExpandedBytes || total > kMaxEnvironmentBytes) {
      collector.error(
          "spec.worker.env",
          fmt::format(
              "found more than {} bytes {} {} with its $(...) expanded, "
              "expected an environment that a process can have",
              expanded.size() > kMaxExpandedBytes ? kMaxExpandedBytes : kMaxEnvironmentBytes,
              expanded.size() > kMaxExpandedBytes ? "in" : "up to", describe_value(name)));
      break;
    }
    variables[name] = std::move(expanded);
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
  return names.empty() ? "spec.volumes is empty" : names;
}

class PathValidator {
 public:
  PathValidator(const TrainJob& job, FindingCollector& collector)
      : job_(job), collector_(collector), variables_(sample_environment(job, collector)) {}

  void check_length(std::string_view flag, const std::string& value) {
    if (expand(value, variables_).size() <= kMaxExpandedBytes) return;
    collector_.error(fmt::format("spec.trainer.{}", flag),
                     fmt::format("found more than {} bytes with its $(...) expanded, expected an "
                                 "argument that a process can have",
                                 kMaxExpandedBytes));
  }

  void check(const std::string& field, const std::string& written, bool output) {
    const std::string path = "spec.trainer." + field;
    if (written.empty()) {
      return collector_.error(path, "found nothing, expected VOLUME:relative/path");
    }
    const Result<TrainerPath> unexpanded = parse_trainer_path(written);
    if (!unexpanded.ok()) return collector_.error(path, unexpanded.error().message);
    if (const auto unknown = unknown_references(written, variables_); !unknown.empty()) {
      return collector_.error(
          path, fmt::format("found $({}), which no plain value of spec.worker.env sets, expected a "
                            "variable such as $({})",
                            describe_value(unknown.front()), env::kJobName));
    }
    const std::string text = expand(written, variables_);
    if (text.size() > kMaxExpandedBytes) return check_length(field, written);
    const Result<TrainerPath> parsed = parse_trainer_path(text);
    if (!parsed.ok() || parsed->volume != unexpanded->volume) {
      return collector_.error(
          path, parsed.ok()
                    ? fmt::format("found {}, expected the name of a volume without variables",
                                  describe_value(written))
                    : parsed.error().message);
    }
    check_volume(path, *parsed, output);
  }

 private:
  void check_volume(const std::string& path, const TrainerPath& parsed, bool output) {
    const Volume* volume = find_volume(job_, parsed.volume);
    if (volume == nullptr) {
      return collector_.error(path,
                              fmt::format("found the volume {}, expected one of spec.volumes ({})",
                                          describe_value(parsed.volume), volume_names(job_)));
    }
    if (!output) return;
    if (parsed.relative.find_first_not_of("./") == std::string::npos) {
      collector_.error(path, fmt::format("found {}:{}, expected a directory on the volume, not the "
                                         "volume itself",
                                         parsed.volume, parsed.relative));
    }
    if (is_read_only(*volume)) {
      collector_.error(path,
                       fmt::format("found the volume {}, which is read-only, expected a writable "
                                   "volume",
                                   parsed.volume));
    }
  }

  const TrainJob& job_;
  FindingCollector& collector_;
  Environment variables_;
};

// Why a word of args is refused. Every flag of the trainer is a field of spec.trainer or set by the
// operator.
std::string describe_argument(std::string_view word) {
  const auto field = [](std::string_view name) {
    return fmt::format("the field spec.trainer.{}", name);
  };
  if (word.find('\0') != std::string_view::npos) {
    return "found a zero byte, expected an argument without one";
  }
  if (!word.starts_with("--")) {
    return fmt::format("found {}, expected fields of spec.trainer", describe_value(word));
  }
  const std::string_view name = word.substr(2, word.find('=') - 2);
  const TrainingFlag* flag = find_training_flag(name);
  if (flag == nullptr) {
    const std::string_view near = nearest_training_flag(name);
    return fmt::format("found --{}, which is no flag of the trainer{}", describe_value(name),
                       near.empty() ? "" : fmt::format("; did you mean {}?", field(near)));
  }
  if (flag->set_by_runtime) {
    return fmt::format("found --{}, expected nothing: the operator sets it", name);
  }
  if (!flag->in_manifest()) {
    return fmt::format("found --{}, expected nothing{}", name, reason_not_in_manifest(*flag));
  }
  std::string message = fmt::format("found --{}, expected {}", name, field(flag->name));
  if (word.size() > name.size() + 2) {
    const auto value = normalize_flag_value(*flag, word.substr(name.size() + 3));
    if (!value.ok()) message += fmt::format(" with another value: {}", value.error().message);
  }
  return message;
}

void validate_args(const TrainJob& job, FindingCollector& collector) {
  const std::vector<std::string>& args = job.spec.trainer.args;
  for (std::size_t i = 0; i < args.size(); ++i) {
    // The value of the flag before it.
    const bool value = i > 0 && args[i - 1].starts_with("--") && !args[i].starts_with("--") &&
                       args[i - 1].find('=') == std::string::npos;
    if (!value) collector.error(element_path("spec.trainer.args", i), describe_argument(args[i]));
  }
}

}  // namespace

void validate_trainer(const TrainJob& job, FindingCollector& collector) {
  const Trainer& trainer = job.spec.trainer;
  const Result<std::string> task =
      normalize_flag_value(*find_training_flag("task_name"), trainer.task);
  if (!task.ok()) {
    std::string message = task.error().message;
    const std::string_view near =
        nearest_name(trainer.task, find_training_flag("task_name")->choices);
    if (!near.empty()) message += fmt::format("; did you mean {}?", near);
    collector.error("spec.trainer.task", message);
  } else if (*task != trainer.task) {
    collector.error("spec.trainer.task",
                    fmt::format("found {}, expected {}", describe_value(trainer.task), *task));
  }
  PathValidator paths(job, collector);
  paths.check("model", trainer.model, false);
  paths.check("data", trainer.data, false);
  paths.check("output", trainer.output, true);
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.volume_path) continue;
    const std::string path = flag_value(job, flag.name);
    if (!path.empty()) paths.check(std::string(flag.name), path, false);
  }
  for (const auto& [flag, value] : trainer.flags) paths.check_length(flag, value);
  if (flag_value(job, "do_train") == "false" && flag_value(job, "do_eval") == "false" &&
      flag_value(job, "do_predict") == "false") {
    collector.error("spec.trainer.do_train",
                    "found do_train and do_eval false, expected at least one of them, or "
                    "do_predict, true");
  }
  validate_args(job, collector);
}

}  // namespace tilewright::api
