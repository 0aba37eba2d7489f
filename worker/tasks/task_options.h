// What determines a task besides its name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/tasks/rows/rows.h"
#include "worker/tasks/rows/tables.h"
#include "worker/tasks/task.h"

namespace tilewright::tasks {

// Opens the rows of a part with the selected columns. Throws Failure(kData).
using RowOpener =
    std::function<std::unique_ptr<RowSource>(const DataPart&, const columnar::Selection&)>;

struct TaskOptions {
  std::string name = {};  // as in --task_name, in any case; empty: a task of the files below
  // Of a task without a name, or of question answering. Files that are not needed may be empty;
  // without a training file the labels are the model's.
  std::string train_file = {};
  std::string validation_file = {};
  std::string test_file = {};
  // id2label of the model's config.json in order. A task with the same labels, in any case and
  // order, takes the order from it.
  std::vector<std::string> model_labels = {};
  // A data set from the hub, which replaces the files of a task with a name; null: there is none.
  std::shared_ptr<const DataTables> tables = {};
  // Replaces the files. The columns of a GLUE task then have the names of the hub's data set, its
  // labels are ids or names, and a column `idx` has the indices of the rows.
  RowOpener open_rows = {};
};

}  // namespace tilewright::tasks
