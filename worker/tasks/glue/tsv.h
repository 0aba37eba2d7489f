// Reads the tab-separated files of GLUE: no quoting, one row a line, valid UTF-8.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::tasks::glue {

struct TsvRow {
  std::size_t line;  // in the file, from 1
  std::vector<std::string_view> fields;
};

// The rows of one file. Each has as many fields as the first line, at most kMaxLineBytes and valid
// UTF-8. A byte-order mark, carriage returns before line feeds and
// empty lines are skipped.
class Tsv {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

  // Throws Failure with ExitCode::kData if a check fails; the message names the file and line.
  // `headerless_fields` > 0: there is no header, and each line has that many fields.
  // `max_rows` > 0: reads at most that many rows and does not check the lines after them.
  Tsv(const std::filesystem::path& path, std::size_t headerless_fields, std::size_t max_rows);
  Tsv(const Tsv&) = delete;
  Tsv& operator=(const Tsv&) = delete;

  const std::vector<TsvRow>& rows() const { return rows_; }

  // The index of a column in the header. Throws Failure, which lists the header, if it is missing.
  std::size_t column(std::string_view name) const;

  // Throws Failure with ExitCode::kData and the message "train.tsv:12: SENTENCE".
  [[noreturn]] void fail(std::size_t line, const std::string& sentence) const;

 private:
  std::filesystem::path path_;
  std::string content_;  // the fields are views into it
  std::vector<std::string_view> header_;
  std::vector<TsvRow> rows_;
};

}  // namespace tilewright::tasks::glue
