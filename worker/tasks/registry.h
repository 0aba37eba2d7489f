// Finds a task by its name. A new task is a new folder and one line in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/task.h"

namespace tilewright::tasks {

// Names of all tasks, in the order in which help texts list them.
std::vector<std::string> task_names();

// Case does not matter ("MRPC" is "mrpc"). Failure with kUsage, with the names there are, if there
// is no such task.
std::unique_ptr<const Task> find_task(std::string_view name);

}  // namespace tilewright::tasks
