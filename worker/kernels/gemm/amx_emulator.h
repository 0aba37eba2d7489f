// Emulates the AMX tile registers in plain C++ with the same bits, so that packing, tails and the
// order of additions of the AMX kernels are tested on every machine.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 2, "TDPBF16PS". For
// each destination element, the products of the even elements of all pairs are summed in fp32, and
// those of the odd elements in a second sum; both start from zero, ascend and use FMA. The two sums
// are added, and the result is added to the destination. Rounding is to nearest even, subnormal
// inputs count as zero and subnormal results become zero, independent of MXCSR.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {
namespace {  // also compiled for AVX512-BF16

class AmxEmulator {
 public:
  static constexpr int kRows = 16;
  static constexpr int kBytes = 64;  // bytes of a row

  template <int t>
  void zero() {
    __builtin_memset(tiles_[t], 0, sizeof tiles_[t]);
  }
  template <int t>
  void load(const void* from, std::int64_t stride) {
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(tiles_[t][r], static_cast<const char*>(from) + r * stride, kBytes);
    }
  }
  template <int t>
  void stream(const void* from, std::int64_t stride) {
    load<t>(from, stride);
  }
  template <int t>
  void store(void* to, std::int64_t stride) const {
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(static_cast<char*>(to) + r * stride, tiles_[t][r], kBytes);
    }
  }
  template <int c, int a, int b>
  void dot() {
    dot(tiles_[c], tiles_[a], tiles_[b]);
  }
  // As VCVTNE2PS2BF16.
  static void round(const float* sums, const float* bias, runtime::bf16* out) {
    for (int c = 0; c < 2 * kRows; ++c) out[c] = runtime::to_bf16(flushed(sums[c] + bias[c]));
  }

 private:
  using Tile = unsigned char[kRows][kBytes];

  static float flushed(float x) {
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
  }
  // The product of two bf16 is exact in fp32 unless it is tiny, so multiplying and adding equals
  // FMA.
  static float multiply_add(float x, float y, float sum) {
    const float product = x * y;
    return flushed(__builtin_fabsf(product) >= 0x1p-100f ? sum + product
                                                         : __builtin_fmaf(x, y, sum));
  }
  static float element(const unsigned char* row, int i) {
    runtime::bf16 value;
    __builtin_memcpy(&value, row + 2 * i, sizeof value);
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
        __builtin_memcpy(&sum, &c[m][4 * n], sizeof sum);
        sum = flushed(flushed(sum) + flushed(even[n] + odd[n]));
        __builtin_memcpy(&c[m][4 * n], &sum, sizeof sum);
      }
    }
  }

  Tile tiles_[8] = {};
};

}  // namespace
}  // namespace tilewright::kernels
