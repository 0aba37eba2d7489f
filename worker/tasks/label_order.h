// The order of a task's labels, which gives their ids.
#pragma once

#include <string>
#include <vector>

namespace tilewright::tasks {

// As in run_glue: the task's labels in the order of the model's if both have the same ones, except
// for their case; else in their own order.
std::vector<std::string> in_model_order(std::vector<std::string> task_labels,
                                        const std::vector<std::string>& model_labels);

}  // namespace tilewright::tasks
