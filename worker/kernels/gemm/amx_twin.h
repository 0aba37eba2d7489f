// The AMX tile registers in plain C++: the same meaning, bit for bit, on every machine, so that
// packing, tails and the order of additions of the AMX kernels are tested without the hardware.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 2, "TDPBF16PS". For
// each element of the destination, the products of the even elements of all pairs are added up in
// one fp32 sum and those of the odd elements in another, both from zero, rising, by FMA; then the
// two sums are added, and that to the destination. All with rounding to nearest even, denormal
// inputs taken as zero and denormal results flushed to zero, whatever MXCSR says.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {

class AmxTwin {
 public:
  static constexpr int kRows = 16;
  static constexpr int kBytes = 64;  // of a row

  template <int t>
  void zero() {
    std::memset(tiles_[t], 0, sizeof tiles_[t]);
  }
  template <int t>
  void load(const void* from, std::int64_t stride) {
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(tiles_[t][r], static_cast<const char*>(from) + r * stride, kBytes);
    }
  }
  template <int t>
  void store(void* to, std::int64_t stride) const {
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, tiles_[t][r], kBytes);
    }
  }
  template <int c, int a, int b>
  void dot() {
    dot(tiles_[c], tiles_[a], tiles_[b]);
  }
  // As VCVTNE2PS2BF16 does.
  static void round(const float* sums, const float* bias, runtime::bf16* out) {
    for (int c = 0; c < 2 * kRows; ++c) out[c] = runtime::to_bf16(flushed(sums[c] + bias[c]));
  }

 private:
  using Tile = unsigned char[kRows][kBytes];

  static float flushed(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  // A product of two bf16 is exact in fp32 unless it is tiny: then adding it is the FMA.
  static float multiply_add(float x, float y, float sum) {
    const float product = x * y;
    return flushed(std::abs(product) >= 0x1p-100f ? sum + product : std::fma(x, y, sum));
  }
  static float element(const unsigned char* row, int i) {
    runtime::bf16 value;
    std::memcpy(&value, row + 2 * i, sizeof value);
    return flushed(runtime::to_float(value));
  }

  static void dot(Tile& c, const Tile& a, const Tile& b) {
    constexpr int kPairs = kBytes / 4;
    for (int m = 0; m < kRows; ++m) {
      float even[kPairs] = {};
      float odd[kPairs] = {};
      for (int k = 0; k < kPairs; ++k) {
        const float left_even = element(a[m], 2 * k);
        const float left_odd = element(a[m], 2 * k + 1);
        for (int n = 0; n < kPairs; ++n) {
          even[n] = multiply_add(left_even, element(b[k], 2 * n), even[n]);
          odd[n] = multiply_add(left_odd, element(b[k], 2 * n + 1), odd[n]);
        }
      }
      for (int n = 0; n < kPairs; ++n) {
        float sum = 0;
        std::memcpy(&sum, &c[m][4 * n], sizeof sum);
        sum = flushed(flushed(sum) + flushed(even[n] + odd[n]));
        std::memcpy(&c[m][4 * n], &sum, sizeof sum);
      }
    }
  }

  Tile tiles_[8] = {};
};

}  // namespace tilewright::kernels
