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

// x^(8 * bytes): multiplies a checksum by it to append that many zero bytes.
constexpr Polynomial zeros(std::size_t bytes) {
  Polynomial result = kOne;
  Polynomial square = kOne >> 8;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

constexpr std::array<Polynomial, 256> byte_table() {
  std::array<Polynomial, 256> table{};
  for (Polynomial byte = 0; byte < 256; ++byte) {
    Polynomial crc = byte;
    for (int i = 0; i < 8; ++i) crc = times_x(crc);
    table[byte] = crc;
  }
  return table;
}

#ifdef __x86_64__

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

#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  static constexpr std::array<Polynomial, 256> kTable = byte_table();
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42(bytes, crc);
#endif
  return crc32c_portable(bytes, crc);
}

}  // namespace tilewright::collectives
