#include "worker/columnar/table.h"

#include <fmt/ranges.h>

#include <set>

#include "common/base/printable.h"

namespace tilewright::columnar {

Table::Table(std::filesystem::path path, std::size_t rows, std::vector<Column> columns)
    : path_(std::move(path)), rows_(rows), columns_(std::move(columns)) {
  std::set<std::string_view> names;
  for (const Column& column : columns_) {
    TW_CHECK(column.rows() == rows_, "column {} has {} rows, the table {}", column.name(),
             column.rows(), rows_);
    if (!names.insert(column.name()).second) {
      Location(path_.string())
          .fail(fmt::format("has two columns {}", quoted_excerpt(column.name())));
    }
  }
}

const Column* Table::find(std::string_view name) const {
  for (const Column& column : columns_) {
    if (column.name() == name) return &column;
  }
  return nullptr;
}

const Column& Table::column(std::string_view name) const {
  if (const Column* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name());
  Location(path_.string())
      .fail(fmt::format("has no column {}, found {}", quoted_excerpt(name),
                        quoted_excerpt(fmt::format("{}", fmt::join(names, ", ")), kLineExcerpt)));
}

const Column& Table::checked(std::string_view name, ValueType type, bool list) const {
  const Column& found = column(name);
  const Location location =
      Location(path_.string()).at(fmt::format("column {}", quoted_excerpt(name)));
  if (found.type() != type || found.is_list() != list) {
    location.fail(fmt::format("found {}{}, expected {}{}", found.is_list() ? "lists of " : "",
                              to_string(found.type()), list ? "lists of " : "", to_string(type)));
  }
  if (found.null_count() > 0) {
    std::size_t row = 0;
    while (!found.is_null(row)) ++row;
    location.fail(fmt::format("row {} is null, expected a value in every row", row + 1));
  }
  return found;
}

const Strings& Table::strings(std::string_view name) const {
  return checked(name, ValueType::kString, false).strings();
}

std::span<const std::int64_t> Table::integers(std::string_view name) const {
  return checked(name, ValueType::kInteger, false).integers();
}

StringLists Table::string_lists(std::string_view name) const {
  const Column& found = checked(name, ValueType::kString, true);
  return {found.strings(), found.list_offsets()};
}

NumberLists<std::int64_t> Table::integer_lists(std::string_view name) const {
  const Column& found = checked(name, ValueType::kInteger, true);
  return {found.integers(), found.list_offsets()};
}

}  // namespace tilewright::columnar
