// Reads rows from JSON: one object per line, an array of objects, or {"data": [objects]}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/tasks/rows/rows.h"

namespace tilewright::tasks {

// The columns are the members of all objects, in the order in which they first occur; a member that
// an object does not have is missing.
class JsonRows : public RowSource {
 public:
  explicit JsonRows(const std::filesystem::path& path);

  const std::vector<std::string>& columns() const override { return columns_; }
  bool next() override;
  Value value(std::size_t column) const override;
  std::string name() const override { return name_; }
  std::string location() const override;  // the line in which the object begins

  struct Cell {
    std::uint32_t column = 0;
    ValueKind kind = ValueKind::kMissing;
    std::string text;
  };
  struct Row {
    std::size_t line = 0;
    std::vector<Cell> cells;  // of the members that the object has, in their order
  };

 private:
  const std::string name_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
  std::size_t next_ = 0;
};

}  // namespace tilewright::tasks
