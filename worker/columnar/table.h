// The content of a data file: columns of equal length, found by name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/columnar/column.h"

namespace tilewright::columnar {

// A list of values per row. Views into the table.
struct StringLists {
  const Strings& values;
  std::span<const std::uint64_t> offsets;  // [rows + 1]
  std::size_t size(std::size_t row) const {
    return static_cast<std::size_t>(offsets[row + 1] - offsets[row]);
  }
  std::string_view at(std::size_t row, std::size_t i) const {
    return values[static_cast<std::size_t>(offsets[row]) + i];
  }
};
template <typename Value>
struct NumberLists {
  std::span<const Value> values;
  std::span<const std::uint64_t> offsets;  // [rows + 1]
  std::span<const Value> operator[](std::size_t row) const {
    return values.subspan(static_cast<std::size_t>(offsets[row]),
                          static_cast<std::size_t>(offsets[row + 1] - offsets[row]));
  }
};

// Strings are valid UTF-8.
class Table {
 public:
  // Every column has `rows` rows. Throws Failure(kData) if two columns have the same name.
  Table(std::filesystem::path path, std::size_t rows, std::vector<Column> columns);

  const std::filesystem::path& path() const { return path_; }
  std::size_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }

  const Column* find(std::string_view name) const;  // nullptr if there is none
  const Column& column(std::string_view name) const;

  // Values of a column in which no row is null. Throws Failure(kData) that names file and column
  // if there is no such column, if it has another type or a null.
  const Strings& strings(std::string_view name) const;
  std::span<const std::int64_t> integers(std::string_view name) const;
  StringLists string_lists(std::string_view name) const;
  NumberLists<std::int64_t> integer_lists(std::string_view name) const;

 private:
  const Column& checked(std::string_view name, ValueType type, bool list) const;

  std::filesystem::path path_;
  std::size_t rows_;
  std::vector<Column> columns_;
};

}  // namespace tilewright::columnar
