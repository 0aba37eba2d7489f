// Makes a task by its name, or one of the user's files.
#pragma once

#include <memory>

#include "worker/tasks/task.h"
#include "worker/tasks/task_options.h"

namespace tilewright::tasks {

// Throws Failure(kUsage) for a name that is not in common/contract/tasks.h, which it lists, and for
// options that exclude each other, and Failure(kData) for files whose labels cannot be determined.
std::unique_ptr<const Task> make_task(const TaskOptions& options);

}  // namespace tilewright::tasks
