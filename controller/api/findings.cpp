#include "controller/api/findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::api {

std::string FieldError::sentence(std::string_view file) const {
  std::string text;
  if (!file.empty()) {
    text = line > 0 ? fmt::format("{}:{}: ", file, line) : fmt::format("{}: ", file);
  } else if (line > 0) {
    text = fmt::format("line {}: ", line);
  }
  return text + (path.empty() ? message : fmt::format("{}: {}", path, message));
}

void Findings::append(Findings other) {
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  warnings.insert(warnings.end(), other.warnings.begin(), other.warnings.end());
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

}  // namespace tilewright::api
