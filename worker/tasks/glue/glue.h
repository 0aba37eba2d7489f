// The GLUE tasks of one or two sentences and a class: mrpc, sst2, cola, rte, by the names, labels
// and metrics of Hugging Face's run_glue and the layouts of the public GLUE download.
#pragma once

#include <memory>
#include <vector>

#include "worker/tasks/task.h"

namespace tilewright::tasks::glue {

std::vector<std::unique_ptr<const Task>> make_tasks();

}  // namespace tilewright::tasks::glue
