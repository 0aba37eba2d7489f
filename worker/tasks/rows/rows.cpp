#include "worker/tasks/rows/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/training_checks.h"
#include "worker/tasks/rows/csv.h"
#include "worker/tasks/rows/json.h"
#include "worker/tasks/rows/tsv.h"

namespace tilewright::tasks {

std::string_view number_text(const Value& value) {
  std::string_view text = value.text;
  if (value.kind != ValueKind::kField) return text;
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text = text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

bool is_number(const Value& value) {
  if (value.kind != ValueKind::kField && value.kind != ValueKind::kInteger &&
      value.kind != ValueKind::kReal) {
    return false;
  }
  double number = 0;
  const std::string_view text = number_text(value);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error != std::errc::invalid_argument && stop == text.data() + text.size();
}

std::optional<std::size_t> RowSource::find_column(std::string_view name) const {
  const auto found = std::find(columns().begin(), columns().end(), name);
  if (found == columns().end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns().begin());
}

std::size_t RowSource::column(std::string_view wanted, std::string_view advice) const {
  const std::optional<std::size_t> found = find_column(wanted);
  if (found) return *found;
  throw Failure(ExitCode::kData,
                fmt::format("{}: the column {} is missing, found {}{}", name(),
                            quoted_excerpt(wanted), list_names(columns(), "and"), advice));
}

void RowSource::fail(const std::string& message) const {
  throw Failure(ExitCode::kData, fmt::format("{}: {}", location(), message));
}

std::string list_names(std::span<const std::string> names, std::string_view conjunction) {
  constexpr std::size_t kMaxListed = 20;
  std::vector<std::string> listed;
  for (const std::string& name : names.first(std::min(names.size(), kMaxListed))) {
    listed.push_back(quoted_excerpt(name));
  }
  const std::size_t others = names.size() - listed.size();
  return fmt::format(
      "{}{}", fmt::join(listed, ", "),
      others > 0 ? fmt::format(" {} {}", conjunction, counted(others, "other")) : "");
}

bool is_json_file(const std::filesystem::path& path) {
  const std::string suffix = path.extension();
  return suffix == ".json" || suffix == ".jsonl";
}

std::unique_ptr<RowSource> open_rows(const std::string& path) {
  const std::string suffix = std::filesystem::path(path).extension();
  if (suffix == ".csv") return std::make_unique<CsvRows>(path);
  if (suffix == ".tsv") return std::make_unique<TsvRows>(path);
  if (is_json_file(path)) return std::make_unique<JsonRows>(path);
  throw Failure(ExitCode::kData, fmt::format("{}: expected {}", path, kExpectedRowSuffix));
}

}  // namespace tilewright::tasks
