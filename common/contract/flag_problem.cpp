#include "common/contract/flag_problem.h"

#include <fmt/format.h>

namespace tilewright {

std::string FlagProblem::message() const {
  return fmt::format("found {}, expected {}", found.empty() ? "nothing" : found, expected);
}

std::string FlagProblem::sentence() const {
  if (found.empty()) return fmt::format("--{} is missing, expected {}", flag, expected);
  return found.starts_with("--") ? message() : fmt::format("--{}: {}", flag, message());
}

}  // namespace tilewright
