// Reads comma-separated files with a header and RFC 4180's quotes. A quote within a field that does
// not begin with one is a plain character, as in pandas.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/tasks/rows/rows.h"

namespace tilewright::tasks {

// Each row has as many fields as the header. Empty lines are skipped.
class CsvRows : public RowSource {
 public:
  explicit CsvRows(const std::filesystem::path& path);

  const std::vector<std::string>& columns() const override { return header_; }
  bool next() override;
  Value value(std::size_t column) const override { return {ValueKind::kField, fields_.at(column)}; }
  std::string name() const override { return name_; }
  std::string location() const override;  // the line in which the row begins

 private:
  bool next_fields();  // false at the end
  std::string quoted_field(std::size_t row_begin);
  void end_line();
  void check_length(std::size_t row_begin) const;

  const std::string name_;
  std::string content_;
  std::size_t at_ = 0;        // the next byte
  std::size_t line_ = 1;      // that has this byte
  std::size_t row_line_ = 1;  // in which the current row begins
  std::vector<std::string> fields_;
  std::vector<std::string> header_;
};

}  // namespace tilewright::tasks
