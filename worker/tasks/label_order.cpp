#include "worker/tasks/label_order.h"

#include <map>

#include "common/base/strings.h"

namespace tilewright::tasks {

std::vector<std::string> in_model_order(std::vector<std::string> task_labels,
                                        const std::vector<std::string>& model_labels) {
  if (task_labels.size() != model_labels.size()) return task_labels;
  std::map<std::string, std::string> names;  // in lower case -> as in the task
  for (const std::string& label : task_labels) names.emplace(lower_case(label), label);
  std::vector<std::string> ordered;
  for (const std::string& label : model_labels) {
    const auto found = names.find(lower_case(label));
    if (found == names.end()) return task_labels;
    ordered.push_back(found->second);
    names.erase(found);
  }
  return ordered;
}

}  // namespace tilewright::tasks
