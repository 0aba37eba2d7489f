#include "worker/tasks/rows/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "worker/tasks/rows/text_file.h"

namespace tilewright::tasks {

CsvRows::CsvRows(const std::filesystem::path& path)
    : name_(path.string()), content_(read_text_file(path)) {
  if (!next_fields()) fail_without_rows(name_);
  header_ = std::move(fields_);
  check_header(name_, header_);
}

// At "\n", "\r\n" or "\r".
void CsvRows::end_line() {
  at_ = next_line(content_, at_);
  ++line_;
}

void CsvRows::check_length(std::size_t row_begin) const {
  if (at_ - row_begin > kMaxRowBytes) fail("the row " + format_too_long(at_ - row_begin));
}

// at_ is behind the first quote, and afterwards behind the last.
std::string CsvRows::quoted_field(std::size_t row_begin) {
  const std::size_t quote_line = line_;
  std::string field;
  for (;;) {
    const std::size_t begin = at_;
    at_ = std::min(content_.find_first_of("\"\r\n", begin), content_.size());
    check_length(row_begin);
    field.append(content_, begin, at_ - begin);
    if (at_ == content_.size()) {
      fail(fmt::format("the quote that opens in line {} is not closed before the end of the file",
                       quote_line));
    }
    if (content_[at_] != '"') {
      const std::size_t end = at_;
      end_line();
      field.append(content_, end, at_ - end);
      continue;
    }
    ++at_;
    if (at_ == content_.size() || content_[at_] != '"') return field;
    field += '"';
    ++at_;
  }
}

bool CsvRows::next_fields() {
  while (at_ < content_.size() && (content_[at_] == '\n' || content_[at_] == '\r')) end_line();
  if (at_ == content_.size()) return false;
  fields_.clear();
  row_line_ = line_;
  const std::size_t row_begin = at_;
  for (;;) {
    if (at_ < content_.size() && content_[at_] == '"') {
      ++at_;
      fields_.push_back(quoted_field(row_begin));
    } else {
      const std::size_t begin = at_;
      at_ = std::min(content_.find_first_of(",\r\n", begin), content_.size());
      check_length(row_begin);
      fields_.push_back(content_.substr(begin, at_ - begin));
    }
    if (at_ == content_.size()) return true;
    if (content_[at_] == '\n' || content_[at_] == '\r') {
      end_line();
      return true;
    }
    if (content_[at_] != ',') {
      fail(
          fmt::format("found {} after a closing quote in line {}, expected a comma or the end "
                      "of the line; a quote within a quoted field is written twice",
                      quoted_excerpt(content_.substr(
                          at_, utf8_sequence_length(std::string_view(content_).substr(at_)))),
                      line_));
    }
    ++at_;
  }
}

bool CsvRows::next() {
  if (!next_fields()) return false;
  if (fields_.size() != header_.size()) {
    fail(fmt::format("the row has {}, expected {}",
                     counted(fields_.size(), "comma-separated field"), header_.size()));
  }
  return true;
}

std::string CsvRows::location() const { return fmt::format("{}:{}", name_, row_line_); }

}  // namespace tilewright::tasks
