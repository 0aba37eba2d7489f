// Lengths of real examples, read from a file and used as a distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tilewright::bench {

inline constexpr std::int32_t kMaxLength = 512;  // positions of the models
inline constexpr std::size_t kMaxLengths = 1'000'000;

// Reads one number of tokens per line, 1 to kMaxLength. Throws Failure (kUsage) that names the
// file, the line, what was found and what was expected.
std::vector<std::int32_t> read_lengths(const std::string& path);

// A batch of `count` lengths with the distribution of `lengths`: the quantiles (i + 1/2) / count,
// in an order shuffled by a fixed generator, so that all shards have similar lengths. `count` equal
// to the number of lengths takes each once.
std::vector<std::int32_t> sample_lengths(std::vector<std::int32_t> lengths, std::size_t count);

}  // namespace tilewright::bench
