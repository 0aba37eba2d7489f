#include "worker/tasks/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "common/base/result.h"
#include "worker/tasks/glue/glue.h"
#include "worker/tasks/squad/squad.h"

namespace tilewright::tasks {
namespace {

std::vector<std::unique_ptr<const Task>> make_all() {
  std::vector<std::unique_ptr<const Task>> all;
  for (auto&& tasks : {&glue::make_tasks, &squad::make_tasks}) {
    auto made = tasks();
    std::move(made.begin(), made.end(), std::back_inserter(all));
  }
  return all;
}

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& task : make_all()) names.push_back(task->name());
  return names;
}

std::unique_ptr<const Task> find_task(std::string_view name) {
  for (auto& task : make_all()) {
    if (task->name() == lower_case(name)) return std::move(task);
  }
  throw Failure(ExitCode::kUsage, fmt::format("task \"{}\" is unknown, expected one of {}", name,
                                              fmt::join(task_names(), ", ")));
}

}  // namespace tilewright::tasks
