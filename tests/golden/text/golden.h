// The committed hashes, and where the data that they were taken from lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "common/base/sha256.h"
#include "tests/support/paths.h"

namespace tilewright::testing {

// token_hashes.json.
nlohmann::json golden_hashes();

// TILEWRIGHT_DATA_DIR, else shared/data beside the source tree.
std::filesystem::path data_dir();

// Hashes sequences as write_token_hashes.py describes them.
class SequenceHash {
 public:
  void sequence(std::span<const std::int32_t> ids);
  void text(std::string_view bytes);
  std::string hex() { return sha_.hex(); }

 private:
  Sha256 sha_;
};

}  // namespace tilewright::testing

// Leaves the test unless `path` is there: failed in CI, elsewhere skipped with what to set.
#define TILEWRIGHT_NEEDS(path, variable)                                                 \
  do {                                                                                   \
    if (!std::filesystem::exists(path)) {                                                \
      if (tilewright::testing::must_run_all())                                           \
        FAIL() << (path) << " is missing: set " variable " to a folder that has it";     \
      GTEST_SKIP() << (path) << " is missing: set " variable " to a folder that has it"; \
    }                                                                                    \
  } while (false)
