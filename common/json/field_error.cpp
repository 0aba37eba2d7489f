#include "common/json/field_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/printable.h"

namespace tilewright {

std::string FieldError::sentence(std::string_view file) const {
  std::string text;
  if (!file.empty()) {
    text = line > 0 ? fmt::format("{}:{}: ", file, line) : fmt::format("{}: ", file);
  } else if (line > 0) {
    text = fmt::format("line {}: ", line);
  }
  // Paths and found values are text of the manifest.
  return text + printable(path.empty() ? message : fmt::format("{}: {}", path, message));
}

void add_error(std::vector<FieldError>& errors, FieldError error) {
  constexpr std::size_t kMaxErrors = 100;
  if (errors.size() < kMaxErrors) {
    errors.push_back(std::move(error));
  } else if (errors.size() == kMaxErrors) {
    errors.push_back({"", 0, fmt::format("found more than {} errors; these are some", kMaxErrors)});
  }
}

std::string sentences(std::vector<FieldError> errors, std::string_view file) {
  std::stable_sort(errors.begin(), errors.end(),
                   [](const FieldError& a, const FieldError& b) { return a.line < b.line; });
  std::string text;
  for (const FieldError& error : errors) {
    if (!text.empty()) text += '\n';
    text += error.sentence(file);
  }
  return text;
}

}  // namespace tilewright
