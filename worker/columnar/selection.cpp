#include "worker/columnar/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/printable.h"

namespace tilewright::columnar {

std::vector<bool> select_columns(const std::vector<std::string>& names,
                                 std::span<const std::string> selected, const Location& location) {
  if (names.empty()) location.fail("has no columns");
  if (selected.empty()) return std::vector<bool>(names.size(), true);
  std::vector<bool> chosen(names.size(), false);
  for (const std::string& wanted : selected) {
    bool found = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != wanted && !names[i].starts_with(wanted + ".")) continue;
      chosen[i] = true;
      found = true;
    }
    if (!found) {
      location.fail(
          fmt::format("has no column {}, found {}", quoted_excerpt(wanted),
                      quoted_excerpt(fmt::format("{}", fmt::join(names, ", ")), kLineExcerpt)));
    }
  }
  return chosen;
}

}  // namespace tilewright::columnar
