// Finds a task by its name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/task.h"

namespace tilewright::tasks {

// Names of all tasks, in the order of common/contract/tasks.h: GLUE, then question answering.
std::vector<std::string> task_names();

// Ignores case ("MRPC" is "mrpc"). Throws Failure(kUsage), which lists all names, for an unknown
// task.
std::unique_ptr<const Task> find_task(std::string_view name);

}  // namespace tilewright::tasks
