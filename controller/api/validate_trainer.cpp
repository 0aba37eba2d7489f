// Checks spec.trainer: task, paths on volumes, names on the hub, flags.
#include <algorithm>

#include "common/contract/environment.h"
#include "common/contract/nearest.h"
#include "common/contract/pod_paths.h"
#include "common/contract/repository_id.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_flags.h"
#include "controller/api/command.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

// The field of spec.trainer that has the value of a flag.
std::string field_of(std::string_view flag) {
  const auto renamed = std::ranges::find(kRenamedFlags, flag, &RenamedFlag::flag);
  return fmt::format("spec.trainer.{}", renamed == kRenamedFlags.end() ? flag : renamed->field);
}

// The variables of a worker. Placeholders stand for a generated name, the UID and the index, which
// are not known yet.
Environment sample_environment(const TrainJob& job, FindingCollector& collector) {
  TrainJob sample = job;
  sample.metadata.name = sample_name(job.metadata);
  if (sample.metadata.uid.empty()) sample.metadata.uid = kSampleUid;
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

  enum class Kind { kPath, kNameOrPath, kOutput };

  void check(const std::string& field, const std::string& written, Kind kind) {
    const std::string path = "spec.trainer." + field;
    const char* expected = kind == Kind::kNameOrPath ? kExpectedNameOrPath : kExpectedPath;
    const bool is_name = kind == Kind::kNameOrPath && !is_trainer_path(written);
    if (written.empty() || (is_name && !is_repository_id(written))) {
      return collector_.error(
          path, fmt::format("found {}, expected {}", describe_value(written), expected));
    }
    if (is_name) return warn_about_volume(path, written);
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
    check_volume(path, *parsed, kind == Kind::kOutput);
  }

 private:
  // "models/minilm" is a name, but probably not meant as one.
  void warn_about_volume(const std::string& path, const std::string& name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos || find_volume(job_, name.substr(0, slash)) == nullptr) return;
    collector_.warn(path, fmt::format("found {0}, the name of a model or data set on the hub; the "
                                      "path on the volume is {1}:{2}",
                                      name, name.substr(0, slash), name.substr(slash + 1)));
  }

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

void validate_task(const TrainJob& job, FindingCollector& collector) {
  const std::string& task = job.spec.trainer.task;
  const std::string dataset_name = flag_value(job, "dataset_name");
  const TrainingFlag& task_flag = *find_training_flag("task_name");
  const DatasetTask of_dataset =
      dataset_name.empty() ? DatasetTask()
                           : task_of_dataset(dataset_name, flag_value(job, "dataset_config_name"));
  if (task.empty()) {
    if (of_dataset.problem) {
      collector.error(field_of(of_dataset.problem->flag), of_dataset.problem->message());
    } else if (dataset_name.empty() && !has_own_files(job)) {
      collector.error("spec.trainer.task",
                      fmt::format("found nothing, expected {}", describe_expected(task_flag)));
    }
    return;
  }
  const Result<std::string> normal = normalize_flag_value(task_flag, task);
  if (!normal.ok()) {
    return collector.error("spec.trainer.task",
                           normal.error().message + did_you_mean(task, task_flag.choices));
  }
  if (*normal != task) {
    return collector.error("spec.trainer.task",
                           fmt::format("found {}, expected {}", describe_value(task), *normal));
  }
  if (!dataset_name.empty()) {
    const DatasetTask conflict =
        task_of_dataset(dataset_name, flag_value(job, "dataset_config_name"), task);
    if (conflict.problem) {
      collector.error(field_of(conflict.problem->flag), conflict.problem->message());
    }
  }
  if (has_own_files(job) && !answers_questions(task)) {
    collector.error("spec.trainer.task",
                    fmt::format("must not be set with files of your own: the GLUE task {} has its "
                                "own files",
                                task));
  }
}

// Flags in a sentence, without the dashes of a command line.
std::string without_dashes(std::string_view sentence) {
  std::string text;
  for (std::size_t i = 0; i < sentence.size(); ++i) {
    const bool begins = i == 0 || sentence[i - 1] == ' ';
    if (begins && sentence.substr(i).starts_with("--")) i += 2;
    if (i < sentence.size()) text += sentence[i];
  }
  return text;
}

// What the worker checks before it reads the model and the data.
void validate_flags_together(const TrainJob& job, FindingCollector& collector) {
  const Result<TrainingArguments> arguments = training_arguments(job);
  if (!arguments.ok()) return;  // the decoder has checked each flag
  TrainingSettings settings = arguments->settings();
  resolve_actions(*arguments, settings);
  settings.task_name = task_name(job);
  infer_question_answering(*arguments, settings);
  std::vector<FlagProblem> problems = conflicting_flags(*arguments, settings);
  for (FlagProblem& file : missing_files(settings)) problems.push_back(std::move(file));
  if (!settings.task_name.empty()) {
    const auto metric = unknown_metric(settings, settings.metric_for_best_model);
    if (metric) problems.push_back(*metric);
  }
  for (FlagProblem& file : unknown_suffixes(settings)) {
    // The end of the name may be in a variable.
    if (flag_value(job, file.flag).find("$(") == std::string::npos) {
      problems.push_back(std::move(file));
    }
  }
  for (const FlagProblem& problem : problems) {
    collector.error(field_of(problem.flag), without_dashes(problem.message()));
  }
}

// Flags of a script that do nothing here.
void warn_about_flags_without_effect(const TrainJob& job, FindingCollector& collector) {
  for (const auto& [name, value] : job.spec.trainer.flags) {
    const TrainingFlag* flag = find_training_flag(name);
    if (flag == nullptr || flag->reason_unused_in_job().empty()) continue;
    collector.warn(fmt::format("spec.trainer.{}", name),
                   fmt::format("has no effect: {}", flag->reason_unused_in_job()));
  }
}

}  // namespace

void validate_trainer(const TrainJob& job, FindingCollector& collector) {
  using Kind = PathValidator::Kind;
  const Trainer& trainer = job.spec.trainer;
  validate_task(job, collector);
  PathValidator paths(job, collector);
  paths.check("model", trainer.model, Kind::kNameOrPath);
  if (!trainer.data.empty()) paths.check("data", trainer.data, Kind::kPath);
  paths.check("output", trainer.output, Kind::kOutput);
  if (!trainer.cache.empty()) paths.check("cache", trainer.cache, Kind::kPath);
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.volume_path) continue;
    const std::string path = flag_value(job, flag.name);
    if (path.empty()) continue;
    paths.check(std::string(flag.name), path, flag.hub_name ? Kind::kNameOrPath : Kind::kPath);
  }
  for (const auto& [flag, value] : trainer.flags) paths.check_length(flag, value);
  validate_flags_together(job, collector);
  warn_about_flags_without_effect(job, collector);
}

void warn_about_downloads(const TrainJob& job, FindingCollector& collector) {
  if (!job.spec.trainer.cache.empty() ||
      sets_any(job, {env::kHfHome, env::kHfHubCache, env::kHuggingfaceHubCache,
                     env::kTransformersCache, env::kXdgCacheHome})) {
    return;
  }
  std::string names;
  for (const std::string& name : names_on_hub(job)) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) return;
  collector.warn("spec.trainer.cache",
                 fmt::format("found nothing: each worker pod downloads {} to its own {} at each "
                             "start; VOLUME:relative/path keeps the files for all workers",
                             names, kPodHubCache));
}

}  // namespace tilewright::api
