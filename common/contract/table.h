// Compile-time lookup in the tables of this module.
#pragma once

#include <cstddef>
#include <string_view>

namespace tilewright {

// Returns the row of a constexpr table with this name. An unknown name is a compile error, so every
// constant from find_row() has a row.
template <typename Row, std::size_t N>
consteval const Row& find_row(const Row (&rows)[N], std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row;
  }
  throw "the table has no row of this name";  // not a constant expression: a compile error
}

}  // namespace tilewright
