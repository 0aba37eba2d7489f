// The GLUE tasks of common/contract/tasks.h.
#pragma once

#include <memory>
#include <string_view>

#include "worker/tasks/task_options.h"

namespace tilewright::tasks::glue {

// null if `name`, in lower case, is not a GLUE task. Uses options.model_labels and open_rows.
std::unique_ptr<const Task> make_task(std::string_view name, const TaskOptions& options);

}  // namespace tilewright::tasks::glue
