// Tab-separated files as GLUE has them: no quoting, one row a line, valid UTF-8.
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

// The rows of one file, checked: as many fields in each as in the first line, no line above
// kMaxLineBytes, no ill-formed UTF-8. A byte-order mark, carriage returns before line feeds and
// empty lines are passed over.
class Tsv {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

  // Failure with kData, and with the file and line, when a check fails.
  // `headless_fields` > 0: there is no header, and each line has that many fields.
  // `max_rows` > 0: no more are read, nor are the lines after them checked.
  Tsv(const std::filesystem::path& path, std::size_t headless_fields, std::size_t max_rows);
  Tsv(const Tsv&) = delete;
  Tsv& operator=(const Tsv&) = delete;

  const std::vector<TsvRow>& rows() const { return rows_; }

  // The place of a header's column; a Failure that lists the header if it has none of that name.
  std::size_t column(std::string_view name) const;

  // Throws Failure with kData: "train.tsv:12: ".
  [[noreturn]] void fail(std::size_t line, const std::string& sentence) const;

 private:
  std::filesystem::path path_;
  std::string content_;  // what all the fields are views into
  std::vector<std::string_view> header_;
  std::vector<TsvRow> rows_;
};

}  // namespace tilewright::tasks::glue
