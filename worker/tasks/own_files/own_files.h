// A task of the user's own files: --train_file, --validation_file, --test_file. Columns, labels and
// metrics are chosen as in run_glue.
#pragma once

#include <memory>

#include "worker/tasks/task_options.h"

namespace tilewright::tasks::own_files {

// Reads the training rows to find the sentences and labels. Throws Failure (kData, or kUsage if
// the options are not enough).
std::unique_ptr<const Task> make_task(const TaskOptions& options);

}  // namespace tilewright::tasks::own_files
