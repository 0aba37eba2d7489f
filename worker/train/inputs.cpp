#include "worker/train/inputs.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "common/base/build_id.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/hub/dataset.h"
#include "worker/hub/model.h"
#include "worker/tasks/squad/layout.h"

namespace tilewright::train {

std::string find_question_file(const TrainingSettings& settings) {
  if (!settings.task_name.empty() || !settings.dataset_name.empty()) return "";
  for (const OwnFile& file : own_files(settings)) {
    if (file.path.empty()) continue;
    return tasks::squad::holds_questions(file.path) ? std::string(file.path) : "";
  }
  return "";
}

checkpoint::ModelTask find_model_task(const TrainingArguments& arguments,
                                      const hub::HubOptions& options) {
  TrainingSettings settings = arguments.settings();
  resolve_actions(arguments, settings);
  const std::string& name =
      settings.config_name.empty() ? settings.model_name_or_path : settings.config_name;
  const bool needed = !settings.do_train && (settings.do_eval || settings.do_predict) &&
                      settings.task_name.empty() && settings.dataset_name.empty();
  if (!needed || name.empty()) return {};
  return checkpoint::read_model_task(
      hub::resolve_model({.name_or_path = name,
                          .revision = settings.model_revision,
                          .parts = {.config = true, .tokenizer = false, .weights = false}},
                         options));
}

void resolve_model_names(Settings& settings, const hub::HubOptions& options) {
  const auto resolve = [&](std::string& name, const hub::ModelParts& parts) {
    if (name.empty()) return;
    name = hub::resolve_model(
               {.name_or_path = name, .revision = settings.model_revision, .parts = parts}, options)
               .string();
  };
  resolve(settings.model_name_or_path, {.config = settings.config_name.empty(),
                                        .tokenizer = settings.tokenizer_name.empty(),
                                        .weights = true});
  resolve(settings.config_name, {.config = true, .tokenizer = false, .weights = false});
  resolve(settings.tokenizer_name, {.config = false, .tokenizer = true, .weights = false});
}

void check_start_is_kept(const Settings& settings) {
  if (!settings.do_train || !settings.overwrite_output_dir ||
      !checkpoint::is_checkpoint_of(settings.model_name_or_path, settings.output_dir)) {
    return;
  }
  throw Failure(ExitCode::kUsage,
                fmt::format("--overwrite_output_dir removes the checkpoints of {}, but {} is the "
                            "--model_name_or_path; use another --output_dir",
                            settings.output_dir, settings.model_name_or_path));
}

namespace {

// Names the flag with which a failed download is not needed.
hub::DatasetFiles resolve_or_advise(const hub::DatasetRequest& request,
                                    const hub::HubOptions& options) {
  try {
    return hub::resolve_dataset(request, options);
  } catch (const Failure& failure) {
    if (failure.code() != ExitCode::kHubUnavailable) throw;
    throw Failure(failure.code(), fmt::format("{}; without a connection use {}", failure.what(),
                                              request.may_be_directory
                                                  ? "--dataset_name DIR with its Parquet files"
                                                  : "--data_dir DIR with the files of the task"));
  }
}

}  // namespace

std::shared_ptr<const tasks::DataTables> resolve_data_set(const Settings& settings,
                                                          const hub::HubOptions& options) {
  const bool has_files = !settings.data_dir.empty() || !settings.train_file.empty() ||
                         !settings.validation_file.empty() || !settings.test_file.empty();
  if (settings.dataset_name.empty() && has_files) return nullptr;
  // The user has not named a directory that happens to have the name of the task's data set.
  hub::DatasetRequest request{.name = settings.dataset_name,
                              .config = settings.dataset_config_name,
                              .may_be_directory = !settings.dataset_name.empty()};
  if (request.name.empty()) {
    request.name = answers_questions(settings.task_name) ? settings.task_name : "glue";
  }
  // The configurations of glue are its tasks, in small letters.
  if (is_glue_dataset(request.name)) request.config = settings.task_name;
  hub::DatasetFiles found = resolve_or_advise(request, options);
  return std::make_shared<tasks::DataTables>(
      request.config.empty() ? request.name : request.name + "/" + request.config,
      found.format == hub::DatasetFiles::Format::kArrow ? tasks::DataTables::Format::kArrow
                                                        : tasks::DataTables::Format::kParquet,
      std::move(found.splits));
}

FeatureCache feature_cache(const Settings& settings, const hub::HubOptions& options, Logger& log) {
  FeatureCacheOptions cache;
  cache.directory = options.datasets_cache / "tilewright";
  cache.overwrite = settings.overwrite_cache;
  cache.program = build_id();
  cache.cancel = options.cancel;
  return {std::move(cache), log};
}

}  // namespace tilewright::train
