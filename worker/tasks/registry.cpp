#include "worker/tasks/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/tasks.h"
#include "worker/tasks/glue/glue.h"
#include "worker/tasks/own_files/own_files.h"
#include "worker/tasks/squad/squad.h"

namespace tilewright::tasks {
std::unique_ptr<const Task> make_task(const TaskOptions& options) {
  const bool has_files =
      !options.train_file.empty() || !options.validation_file.empty() || !options.test_file.empty();
  const std::string name = lower_case(options.name);
  if (auto task = squad::make_task(name, options)) return task;
  if (options.name.empty()) {
    if (has_files) return own_files::make_task(options);
    throw Failure(ExitCode::kUsage, "found neither --task_name nor --train_file, expected one");
  }
  if (has_files) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--task_name={} and --train_file, --validation_file or --test_file "
                              "exclude each other: a task with a name has its own files",
                              options.name));
  }
  TaskOptions opened = options;
  if (options.tables != nullptr) {
    opened.open_rows = [tables = options.tables](const DataPart& part,
                                                 const columnar::Selection& columns) {
      return rows_of(tables->read(part, columns));
    };
  }
  if (auto task = glue::make_task(name, opened)) return task;
  throw Failure(ExitCode::kUsage, fmt::format("task \"{}\" is unknown, expected one of {}",
                                              options.name, fmt::join(task_names(), ", ")));
}

}  // namespace tilewright::tasks
