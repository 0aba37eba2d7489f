#include "worker/tasks/rows/tsv.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/strings.h"
#include "worker/tasks/rows/text_file.h"

namespace tilewright::tasks {
namespace {

void split_fields(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (std::size_t begin = 0;;) {
    const std::size_t tab = line.find('\t', begin);
    fields.push_back(line.substr(begin, tab - begin));
    if (tab == std::string_view::npos) return;
    begin = tab + 1;
  }
}

}  // namespace

TsvRows::TsvRows(const std::filesystem::path& path, TsvOptions options)
    : name_(path.string()), options_(options), content_(read_text_file(path)) {
  if (options_.headerless_fields > 0) return;
  if (!next_fields()) fail_without_rows(name_);
  header_.assign(fields_.begin(), fields_.end());
  check_header(name_, header_);
}

bool TsvRows::next_fields() {
  const std::string_view content = content_;
  while (at_ < content.size()) {
    const std::size_t begin = at_;
    const std::size_t end = line_end(content, begin);
    at_ = next_line(content, end);
    ++line_;
    if (end == begin) continue;
    const std::string_view line = content.substr(begin, end - begin);
    if (line.size() > kMaxRowBytes) fail("the line " + format_too_long(line.size()));
    split_fields(line, fields_);
    return true;
  }
  return false;
}

bool TsvRows::next() {
  if (!next_fields()) return false;
  const std::size_t expected =
      options_.headerless_fields > 0 ? options_.headerless_fields : header_.size();
  if (fields_.size() != expected && !options_.allow_ragged) {
    fail(fmt::format("the line has {}, expected {}", counted(fields_.size(), "tab-separated field"),
                     expected));
  }
  return true;
}

Value TsvRows::value(std::size_t column) const {
  if (column >= fields_.size()) return {};
  return {ValueKind::kField, fields_[column]};
}

std::string TsvRows::location() const { return fmt::format("{}:{}", name_, line_); }

}  // namespace tilewright::tasks
