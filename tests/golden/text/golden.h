// The committed hashes and the location of the data that they were computed from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/sha256.h"
#include "tests/support/paths.h"

namespace tilewright::testing {

// The content of token_hashes.json.
nlohmann::json golden_hashes();

// TILEWRIGHT_DATA_DIR; default: ../shared/data relative to the source tree.
std::filesystem::path data_dir();

// Hashes sequences with the algorithm of sequence_hash.py.
class SequenceHash {
 public:
  void sequence(std::span<const std::int32_t> ids);
  void text(std::string_view bytes);
  std::string hex() { return sha_.hex(); }

 private:
  Sha256 sha_;
};

// token_type_ids of an input.
std::vector<std::int32_t> token_types(std::size_t tokens, std::size_t first_segment);

}  // namespace tilewright::testing

// Skips the test if `path` does not exist, and names the variable to set. In CI the test fails.
#define TILEWRIGHT_NEEDS(path, variable)                                          \
  do {                                                                            \
    if (!std::filesystem::exists(path)) {                                         \
      if (tilewright::testing::prerequisites_required())                          \
        FAIL() << (path) << " is missing: set " variable " to its directory";     \
      GTEST_SKIP() << (path) << " is missing: set " variable " to its directory"; \
    }                                                                             \
  } while (false)
