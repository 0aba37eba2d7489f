#include "worker/collectives/crc32c.h"

#include <array>
#include <cstring>

namespace tilewright::collectives {
namespace {

// A polynomial over GF(2) of degree below 32. The highest bit is the coefficient of x^0.
using Polynomial = std::uint32_t;

constexpr Polynomial kOne = 0x80000000;
constexpr Polynomial kCastagnoli = 0x82F63B78;  // the modulus without x^32

constexpr Polynomial times_x(Polynomial a) { return (a >> 1) ^ ((a & 1) != 0 ? kCastagnoli : 0); }

constexpr Polynomial multiply(Polynomial a, Polynomial b) {
  Polynomial product = 0;
  for (int i = 0; i < 32; ++i) {
    product ^= (b & kOne) != 0 ? a : 0;
    b <<= 1;
    a = times_x(a);
  }
  return product;
}

constexpr Polynomial power_of_x(std::size_t exponent) {
  Polynomial result = kOne;
  Polynomial square = kOne >> 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// Multiplies a checksum by it to append that many zero bytes.
constexpr Polynomial zeros(std::size_t bytes) { return power_of_x(8 * bytes); }

constexpr std::array<Polynomial, 256> byte_table() {
  std::array<Polynomial, 256> table{};
  for (Polynomial byte = 0; byte < 256; ++byte) {
    Polynomial crc = byte;
    for (int i = 0; i < 8; ++i) crc = times_x(crc);
    table[byte] = crc;
  }
  return table;
}

std::uint64_t load(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The instruction has a latency of three cycles and starts every cycle, so three lanes of
// kLaneBytes each run at once. Advances `bytes` behind the blocks of three lanes.
template <std::size_t kLaneBytes>
__attribute__((target("sse4.2"))) std::uint32_t take_lanes(std::span<const std::byte>& bytes,
                                                           std::uint32_t crc) {
  constexpr Polynomial kOneLane = zeros(kLaneBytes), kTwoLanes = zeros(2 * kLaneBytes);
  while (bytes.size() >= 3 * kLaneBytes) {
    const std::byte* data = bytes.data();
    std::uint64_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < kLaneBytes; i += 8) {
      first = __builtin_ia32_crc32di(first, load(data + i));
      second = __builtin_ia32_crc32di(second, load(data + kLaneBytes + i));
      third = __builtin_ia32_crc32di(third, load(data + 2 * kLaneBytes + i));
    }
    crc = multiply(static_cast<Polynomial>(first), kTwoLanes) ^
          multiply(static_cast<Polynomial>(second), kOneLane) ^ static_cast<Polynomial>(third);
    bytes = bytes.subspan(3 * kLaneBytes);
  }
  return crc;
}

#define TW_FOLDING __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

using Lanes = long long __attribute__((vector_size(64)));  // four of 128 bits

// VPCLMULQDQ of the lower (0x00) or upper (0x11) halves of each lane.
template <int kHalves>
TW_FOLDING inline Lanes multiply_halves(Lanes a, Lanes b) {
#ifdef __clang__
  return __builtin_ia32_pclmulqdq512(a, b, kHalves);
#else
  return __builtin_ia32_vpclmulqdq_v8di(a, b, kHalves);
#endif
}

TW_FOLDING inline Lanes load_lanes(const std::byte* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// Replaces blocks by one that has the same remainder, as in Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), in four vectors at once: each 128
// bits a x^64 + b are multiplied by x^D, D being the bits of a block, as a (x^(D + 64) mod P) +
// b (x^D mod P), and added to the next block. Products of bit-reflected operands have an additional
// factor x. Advances `bytes` behind the blocks.
TW_FOLDING std::uint32_t fold_blocks(std::span<const std::byte>& bytes, std::uint32_t crc) {
  constexpr std::size_t kVectors = 4, kVector = sizeof(Lanes), kBlock = kVectors * kVector;
  if (bytes.size() < 2 * kBlock) return crc;
  constexpr auto factor = [](std::size_t exponent) {
    return static_cast<long long>(power_of_x(exponent - 1)) << 32;
  };
  constexpr long long kFirst = factor(8 * kBlock + 64), kSecond = factor(8 * kBlock);
  const Lanes factors = {kFirst, kSecond, kFirst, kSecond, kFirst, kSecond, kFirst, kSecond};
  Lanes sums[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = load_lanes(bytes.data() + v * kVector);
  sums[0][0] ^= crc;
  for (bytes = bytes.subspan(kBlock); bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[v] = multiply_halves<0x00>(sums[v], factors) ^ multiply_halves<0x11>(sums[v], factors) ^
                load_lanes(bytes.data() + v * kVector);
    }
  }
  std::uint64_t remainder = 0;
  for (const Lanes& sum : sums) {
    for (std::size_t i = 0; i < kVector / 8; ++i) {
      remainder = __builtin_ia32_crc32di(remainder, static_cast<std::uint64_t>(sum[i]));
    }
  }
  return static_cast<std::uint32_t>(remainder);
}

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  static constexpr std::array<Polynomial, 256> kTable = byte_table();
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t crc) {
  crc = ~crc;
  crc = take_lanes<16384>(bytes, crc);
  crc = take_lanes<512>(bytes, crc);
  std::uint64_t wide = crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    wide = __builtin_ia32_crc32di(wide, load(bytes.data()));
  }
  crc = static_cast<std::uint32_t>(wide);
  for (const std::byte byte : bytes) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(byte));
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  if (!__builtin_cpu_supports("sse4.2")) return crc32c_portable(bytes, crc);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
    crc = ~fold_blocks(bytes, ~crc);
  }
  return crc32c_sse42(bytes, crc);
}

}  // namespace tilewright::collectives
