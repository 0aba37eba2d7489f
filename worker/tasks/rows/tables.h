// The tables of a data set from the hub: Parquet files or Arrow streams by split.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/columnar/selection.h"
#include "worker/columnar/table.h"
#include "worker/tasks/rows/rows.h"
#include "worker/tasks/task.h"

namespace tilewright::tasks {

class DataTables {
 public:
  enum class Format { kParquet, kArrow };
  // By split ("train", "validation_matched"), in the order of the rows.
  using Splits = std::map<std::string, std::vector<std::filesystem::path>>;

  // `name`: of the data set, in messages.
  DataTables(std::string name, Format format, Splits splits);

  const std::string& name() const { return name_; }
  // The split of a part: train, validation or test; of a task with two parts, the "matched" and the
  // "mismatched" one. False if the data set does not have it.
  bool has(const DataPart& part) const;
  // The files of the part; empty if the data set does not have it.
  std::vector<std::filesystem::path> files(const DataPart& part) const;
  // The tables of the part with the selected columns. Throws Failure(kData), for a missing split
  // with a list of those that exist.
  std::vector<columnar::Table> read(const DataPart& part,
                                    const columnar::Selection& columns = {}) const;

 private:
  Splits::const_iterator find(const DataPart& part) const;

  std::string name_;
  Format format_;
  Splits splits_;
};

// The rows of tables that follow each other. Columns of lists have no values.
std::unique_ptr<RowSource> rows_of(std::vector<columnar::Table> tables);

}  // namespace tilewright::tasks
