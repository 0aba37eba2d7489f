// The GLUE classification tasks of common/contract/tasks.h.
#pragma once

#include <memory>
#include <vector>

#include "worker/tasks/task.h"

namespace tilewright::tasks::glue {

// One for each entry of task_descriptions(), in its order.
std::vector<std::unique_ptr<const Task>> make_tasks();

}  // namespace tilewright::tasks::glue
