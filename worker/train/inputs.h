// Turns the names in the flags into local files: models and data sets of the Hugging Face hub.
#pragma once

#include <memory>
#include <string>

#include "worker/checkpoint/model_config.h"
#include "worker/hub/options.h"
#include "worker/tasks/rows/tables.h"
#include "worker/train/feature_cache.h"
#include "worker/train/settings.h"

namespace tilewright::train {

// The first of train_file, validation_file and test_file, if it holds question answering (see
// tasks::squad::holds_questions()) and no flag names the task or data set; else empty.
std::string find_question_file(const TrainingSettings& settings);

// From the config.json of the model or of config_name, which may be names on the hub; the default
// unless an evaluation or a prediction needs it, whose task no flag names. Failures as
// resolve_model_names().
checkpoint::ModelTask find_model_task(const TrainingArguments& arguments,
                                      const hub::HubOptions& options);

// Replaces the names in model_name_or_path, config_name and tokenizer_name by directories, from the
// cache or the hub. Failures have kModel, kHubUnavailable or those of the cache.
void resolve_model_names(Settings& settings, const hub::HubOptions& options);

// Throws Failure with kUsage if the training starts from a checkpoint in the output directory that
// overwrite_output_dir removes.
void check_start_is_kept(const Settings& settings);

// The tables of dataset_name or, for a task without data_dir and files, of the hub's data set of
// the task; null if the data are in files. Failures have kData, kHubUnavailable or those of the
// cache.
std::shared_ptr<const tasks::DataTables> resolve_data_set(const Settings& settings,
                                                          const hub::HubOptions& options);

// The cache of tokenized training data, `tilewright` in the cache of Hugging Face's datasets.
FeatureCache feature_cache(const Settings& settings, const hub::HubOptions& options, Logger& log);

}  // namespace tilewright::train
