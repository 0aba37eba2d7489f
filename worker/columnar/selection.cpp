#include "worker/columnar/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/printable.h"

namespace tilewright::columnar {

std::vector<bool> select_columns(const std::vector<std::string>& names, const Selection& selection,
                                 const Location& location) {
  if (names.empty()) location.fail("has no columns");
  const bool all = selection.required.empty() && selection.optional.empty();
  std::vector<bool> chosen(names.size(), all);
  const auto choose = [&](const std::string& wanted) {
    bool found = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != wanted && !names[i].starts_with(wanted + ".")) continue;
      chosen[i] = true;
      found = true;
    }
    return found;
  };
  for (const std::string& wanted : selection.optional) choose(wanted);
  for (const std::string& wanted : selection.required) {
    if (!choose(wanted)) {
      location.fail(
          fmt::format("has no column {}, found {}", quoted_excerpt(wanted),
                      quoted_excerpt(fmt::format("{}", fmt::join(names, ", ")), kLineExcerpt)));
    }
  }
  return chosen;
}

}  // namespace tilewright::columnar
