// The generator of dropout masks on vectors (dropout/dropout.h).
#include "worker/kernels/dropout/dropout.h"

namespace tilewright::kernels {
namespace {

inline constexpr std::uint32_t kPhiloxMultipliers[2] = {0xd2511f53u, 0xcd9e8d57u};
inline constexpr int kPhiloxRounds = 10;

// The keys of the rounds.
struct PhiloxKeys {
  explicit PhiloxKeys(const std::uint32_t (&key)[2]) {
    for (std::uint32_t r = 0; r < kPhiloxRounds; ++r) {
      first[r] = key[0] + r * 0x9e3779b9u;
      second[r] = key[1] + r * 0xbb67ae85u;
    }
  }
  std::uint32_t first[kPhiloxRounds];
  std::uint32_t second[kPhiloxRounds];
};

// kWordLanes counters {c0, c1, c2, c3}. Upper halves have no meaning.
struct PhiloxState {
  Words c[4];
};
// The rounds [begin, end) of each state.
template <int kBegin, int kEnd, int kCount>
inline void philox(PhiloxState (&states)[kCount], const PhiloxKeys& keys) {
  const Words m0 = words(kPhiloxMultipliers[0]);
  const Words m1 = words(kPhiloxMultipliers[1]);
#pragma GCC unroll 10
  for (int round = kBegin; round < kEnd; ++round) {
    const Words key0 = words(keys.first[round]);
    const Words key1 = words(keys.second[round]);
#pragma GCC unroll 8
    for (PhiloxState& s : states) {
      const Words p0 = multiply(m0, s.c[0]);
      const Words p1 = multiply(m1, s.c[2]);
      s = {{exclusive_or(high_half(p1), s.c[1], key0), p1,
            exclusive_or(high_half_shuffled(p0), s.c[3], key1), p0}};
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels
