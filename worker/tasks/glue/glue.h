// The GLUE tasks of common/contract/tasks.h.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "worker/tasks/task_options.h"

namespace tilewright::tasks::glue {

// One for each entry of task_descriptions(), in its order.
std::vector<std::unique_ptr<const Task>> make_tasks();

// null if `name`, in lower case, is not a GLUE task. Uses options.model_labels and open_rows.
std::unique_ptr<const Task> make_task(std::string_view name, const TaskOptions& options);

}  // namespace tilewright::tasks::glue
