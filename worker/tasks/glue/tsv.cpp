#include "worker/tasks/glue/tsv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/files.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::glue {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t tab = line.find('\t', begin);
    fields.push_back(line.substr(begin, tab - begin));
    if (tab == std::string_view::npos) return fields;
    begin = tab + 1;
  }
}

std::string format_field_count(std::size_t fields) {
  return fmt::format("{} tab-separated field{}", fields, fields == 1 ? "" : "s");
}

}  // namespace

Tsv::Tsv(const std::filesystem::path& path, std::size_t headerless_fields, std::size_t max_rows)
    : path_(path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path.parent_path(), ignored)) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: no such directory, expected the data directory with {} in it",
                              path.parent_path().string(), path.filename().string()));
  }
  content_ = read_file(path, kMaxFileBytes, ExitCode::kData).or_throw();
  const std::string_view content = content_;
  std::size_t at = content.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  std::size_t expected = headerless_fields;
  for (std::size_t number = 1; at < content.size(); ++number) {
    const std::size_t begin = at;
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = content.substr(begin, end - begin);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.size() > kMaxLineBytes) {
      fail(number,
           fmt::format("the line has {} bytes, expected at most {}", line.size(), kMaxLineBytes));
    }
    if (const auto bad = text::find_invalid_utf8(line)) {
      fail(number, fmt::format("byte {} of the line (byte {} of the file) is not valid UTF-8, "
                               "expected text in UTF-8",
                               *bad + 1, begin + *bad + 1));
    }
    std::vector<std::string_view> fields = split_fields(line);
    if (expected == 0) {
      header_ = std::move(fields);
      expected = header_.size();
      continue;
    }
    if (fields.size() != expected) {
      fail(number, fmt::format("the line has {}, expected {}", format_field_count(fields.size()),
                               expected));
    }
    rows_.push_back({number, std::move(fields)});
    if (max_rows > 0 && rows_.size() == max_rows) break;
  }
  if (rows_.empty()) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: has no rows, expected at least one", path_.string()));
  }
}

std::size_t Tsv::column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found == header_.end()) {
    fail(1, fmt::format("the column \"{}\" is missing, found \"{}\"", name,
                        fmt::join(header_, "\", \"")));
  }
  return static_cast<std::size_t>(found - header_.begin());
}

void Tsv::fail(std::size_t line, const std::string& sentence) const {
  throw Failure(ExitCode::kData, fmt::format("{}:{}: {}", path_.string(), line, sentence));
}

}  // namespace tilewright::tasks::glue
