#include "worker/columnar/table.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

namespace tilewright::columnar {
namespace {

using Json = nlohmann::json;

// The member of an object; null if `value` is no object or has no such member.
const Json& member(const Json& value, const std::string& key) {
  static const Json kNull;
  if (!value.is_object()) return kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

}  // namespace

Table::Table(std::filesystem::path path, std::size_t rows, std::vector<Column> columns,
             Metadata metadata)
    : path_(std::move(path)),
      rows_(rows),
      columns_(std::move(columns)),
      metadata_(std::move(metadata)) {
  std::set<std::string_view> names;
  for (const Column& column : columns_) {
    TW_CHECK(column.rows() == rows_, "column {} has {} rows, the table {}", column.name(),
             column.rows(), rows_);
    if (!names.insert(column.name()).second) {
      Location(path_.string()).fail(fmt::format("has two columns {}", quote(column.name())));
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
      .fail(fmt::format("has no column {}, found {}", quote(name),
                        quote(fmt::format("{}", fmt::join(names, ", ")))));
}

const Column& Table::checked(std::string_view name, ValueType type, bool list) const {
  const Column& found = column(name);
  const Location location = Location(path_.string()).at(fmt::format("column {}", quote(name)));
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

std::span<const double> Table::reals(std::string_view name) const {
  return checked(name, ValueType::kReal, false).reals();
}

StringLists Table::string_lists(std::string_view name) const {
  const Column& found = checked(name, ValueType::kString, true);
  return {found.strings(), found.list_offsets()};
}

NumberLists<std::int64_t> Table::integer_lists(std::string_view name) const {
  const Column& found = checked(name, ValueType::kInteger, true);
  return {found.integers(), found.list_offsets()};
}

std::vector<std::string> Table::class_names(const std::string& column) const {
  const auto found = metadata_.find("huggingface");
  if (found == metadata_.end()) return {};
  const Location location = Location(path_.string()).at("metadata \"huggingface\"");
  const Json json = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) location.fail("is not valid JSON");
  const Json& names = member(member(member(member(json, "info"), "features"), column), "names");
  if (names.is_null()) return {};
  std::vector<std::string> classes;
  if (!names.is_array()) location.fail(fmt::format("names of {} are not a list", quote(column)));
  for (const Json& name : names) {
    if (!name.is_string()) {
      location.fail(fmt::format("names of {} contain a value that is no string", quote(column)));
    }
    classes.push_back(name.get<std::string>());
  }
  return classes;
}

}  // namespace tilewright::columnar
