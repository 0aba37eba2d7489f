#include "common/launch/unknown_value.h"

#include <fmt/format.h>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/kubeflow.h"

namespace tilewright::launch {

std::string unknown_value(std::string_view name) {
  return fmt::format("{}{}{}", kUnknownBegin, name, kUnknownEnd);
}

std::string unknown_variable(std::string_view text) {
  return substring_between(text, {&kUnknownBegin, 1}, {&kUnknownEnd, 1}).value_or("");
}

std::string with_references(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == kUnknownBegin) {
      result += '$';
    } else if (c != kUnknownEnd) {
      result += c;
    }
  }
  return result;
}

std::string refuse_unknown(std::string_view name) {
  return fmt::format("found ${}, whose value only the pod knows, expected a plain value in {}",
                     excerpt(name), kubeflow::may_set(name) ? "the command" : "env");
}

}  // namespace tilewright::launch
