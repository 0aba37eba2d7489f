// The SplitMix64 random number generator (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014): a counter with a fixed step and a bijective mix of its 64 bits. Used
// where numbers must depend only on a seed.
#pragma once

#include <cstdint>

namespace tilewright::runtime {

// Always inlined: the files of one instruction set use this class too (see bf16.h).
class SplitMix64 {
 public:
  // 2^64 divided by the golden ratio, odd.
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

  [[gnu::always_inline]] explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}
  [[gnu::always_inline]] constexpr std::uint64_t next() { return mix(state_ += kStep); }
  // Returns the n-th number of SplitMix64(seed), with n starting at 1.
  [[gnu::always_inline]] static constexpr std::uint64_t nth(std::uint64_t seed, std::uint64_t n) {
    return mix(seed + n * kStep);
  }

 private:
  [[gnu::always_inline]] static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace tilewright::runtime
