#include "worker/tasks/rows/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/base/files.h"
#include "common/base/printable.h"
#include "worker/tasks/rows/rows.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[noreturn]] void fail_at_invalid_utf8(const std::filesystem::path& path, std::string_view content,
                                       std::size_t bad) {
  std::size_t number = 1;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t next = next_line(content, line_end(content, begin));
    if (next > bad) break;
    begin = next;
    ++number;
  }
  throw Failure(ExitCode::kData,
                fmt::format("{}:{}: byte {} of the line (byte {} of the file) is not valid UTF-8, "
                            "expected text in UTF-8",
                            path.string(), number, bad - begin + 1, bad + 1));
}

}  // namespace

std::string read_data_file(const std::filesystem::path& path) {
  return read_regular_file(path, kMaxRowFileBytes, ExitCode::kData).or_throw();
}

std::string read_text_file(const std::filesystem::path& path) {
  std::string content = read_data_file(path);
  if (const auto bad = text::find_invalid_utf8(content)) fail_at_invalid_utf8(path, content, *bad);
  if (content.starts_with(kByteOrderMark)) content.erase(0, kByteOrderMark.size());
  return content;
}

std::size_t line_end(std::string_view content, std::size_t begin) {
  return std::min(content.find_first_of("\r\n", begin), content.size());
}

std::size_t next_line(std::string_view content, std::size_t end) {
  return end + (content.substr(end).starts_with("\r\n") ? 2 : 1);
}

std::string format_too_long(std::size_t bytes) {
  return fmt::format("has {} bytes, expected at most {}", bytes, kMaxRowBytes);
}

void check_header(const std::string& file, const std::vector<std::string>& columns) {
  if (columns.size() > kMaxColumns) {
    throw Failure(ExitCode::kData, fmt::format("{}: found {} columns, expected at most {}", file,
                                               columns.size(), kMaxColumns));
  }
  std::set<std::string_view> names;
  for (const std::string& name : columns) {
    if (name.empty() || names.insert(name).second) continue;
    throw Failure(ExitCode::kData,
                  fmt::format("{}: two columns are named {}, expected different names", file,
                              quoted_excerpt(name)));
  }
}

void fail_without_rows(const std::string& file) {
  throw Failure(ExitCode::kData, fmt::format("{}: has no rows, expected at least one", file));
}

}  // namespace tilewright::tasks
