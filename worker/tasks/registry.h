// Finds a task by its name, or makes one of the user's files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/task.h"
#include "worker/tasks/task_options.h"

namespace tilewright::tasks {

// Names of all tasks, in the order of common/contract/tasks.h: GLUE, then question answering.
std::vector<std::string> task_names();

// Ignores case ("MRPC" is "mrpc"). Throws Failure(kUsage), which lists all names, for an unknown
// task.
std::unique_ptr<const Task> find_task(std::string_view name);

// Throws Failure(kUsage) for an unknown name and for options that exclude each other, and
// Failure(kData) for files whose labels cannot be determined.
std::unique_ptr<const Task> make_task(const TaskOptions& options);

}  // namespace tilewright::tasks
