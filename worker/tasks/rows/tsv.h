// Reads tab-separated files as the public GLUE files are: no quoting, one row a line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/rows/rows.h"

namespace tilewright::tasks {

struct TsvOptions {
  std::size_t headerless_fields = 0;  // > 0: no header, and each line has that many fields
  // Accept rows with fewer fields than the header, whose last values are missing, and ignore
  // additional fields.
  bool allow_ragged = false;
};

// Lines end as in Python's text files: at "\n", "\r\n" or "\r". Empty lines are skipped.
class TsvRows : public RowSource {
 public:
  explicit TsvRows(const std::filesystem::path& path, TsvOptions options = {});

  const std::vector<std::string>& columns() const override { return header_; }
  bool next() override;
  Value value(std::size_t column) const override;
  std::string name() const override { return name_; }
  std::string location() const override;

 private:
  bool next_fields();  // false at the end

  const std::string name_;
  const TsvOptions options_;
  std::string content_;   // the fields are views into it
  std::size_t at_ = 0;    // where the next line begins
  std::size_t line_ = 0;  // number of the current line, from 1
  std::vector<std::string_view> fields_;
  std::vector<std::string> header_;
};

}  // namespace tilewright::tasks
