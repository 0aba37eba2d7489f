// The sequence lengths, and so the numbers of rows, that tests of kernels and models cover.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::testing {

// Of 1 to 512 tokens: all up to 70, then those at and beside multiples of 16, of which tiles,
// chunks and blocks of tokens consist.
inline std::vector<std::int32_t> covered_lengths() {
  constexpr std::int32_t kMost = 512;
  std::vector<std::int32_t> all;
  for (std::int32_t length = 1; length <= 70; ++length) all.push_back(length);
  for (const std::int32_t edge : {80, 96, 112, 128, 160, 192, 240, 256, 320, 384, 448, kMost}) {
    for (const std::int32_t length : {edge - 1, edge, edge + 1}) {
      if (length <= kMost) all.push_back(length);
    }
  }
  return all;
}

}  // namespace tilewright::testing
