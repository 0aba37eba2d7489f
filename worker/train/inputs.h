// Turns the names in the flags into local files: models and data sets of the Hugging Face hub.
#pragma once

#include <memory>

#include "worker/hub/options.h"
#include "worker/tasks/rows/tables.h"
#include "worker/train/settings.h"

namespace tilewright::train {

// Replaces the names in model_name_or_path, config_name and tokenizer_name by directories, from the
// cache or the hub. Failures have kModel, kHubUnavailable or those of the cache.
void resolve_model_names(Settings& settings, const hub::HubOptions& options);

// The tables of dataset_name or, for a task without data_dir and files, of the hub's data set of
// the task; null if the data are in files. Failures have kData, kHubUnavailable or those of the
// cache.
std::shared_ptr<const tasks::DataTables> resolve_data_set(const Settings& settings,
                                                          const hub::HubOptions& options);

}  // namespace tilewright::train
