// TILEWRIGHT_FAULT (worker/train/faults.h) of the programs that a test starts.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/contract/environment.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::testing {

// Sets TILEWRIGHT_FAULT for processes started during its lifetime.
class ScopedFault : ScopedVariable {
 public:
  explicit ScopedFault(const std::string& text) : ScopedVariable(env::kFault, text) {}
};

// The fault in any membership epoch: on a busy machine a worker may join after the first step. It
// removes `file`, which this creates.
inline std::string fault_once(const std::string& fault, const std::filesystem::path& file) {
  std::ofstream(file).put('\n');
  return fmt::format("{},once={}", fault, file.string());
}

}  // namespace tilewright::testing
