#include "tests/support/paths.h"

#include <stdlib.h>

#include <stdexcept>

namespace tilewright::testing {

std::filesystem::path source_dir() { return TILEWRIGHT_SOURCE_DIR; }

std::filesystem::path program(const std::string& name) {
  return std::filesystem::path(TILEWRIGHT_BINARY_DIR) / "bin" / name;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = std::filesystem::temp_directory_path() / "tilewright-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tilewright::testing
