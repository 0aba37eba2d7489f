// The part of the tile policies (tiles.h) shared by the AVX-512 files.
#pragma once

#include <immintrin.h>

#include "worker/kernels/gemm/packing.h"
#include "worker/kernels/math/bf16_avx512.h"

namespace tilewright::kernels {
namespace {

// Transposes 16 x 16 words of 32 bits in place.
inline void transpose(__m512i (&m)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {  // pairs of rows, within 128-bit lanes
    t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // m[i + j]: column j of each lane, rows i .. i + 3
    m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // lanes: rows 0 .. 7 and 8 .. 15 of two lanes each
    t[j] = _mm512_shuffle_i32x4(m[j], m[j + 4], 0x88);
    t[j + 4] = _mm512_shuffle_i32x4(m[j], m[j + 4], 0xdd);
    t[j + 8] = _mm512_shuffle_i32x4(m[j + 8], m[j + 12], 0x88);
    t[j + 12] = _mm512_shuffle_i32x4(m[j + 8], m[j + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    m[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    m[j + 4] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0x88);
    m[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    m[j + 12] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0xdd);
  }
}

struct Packing512 {
  static constexpr int kBlockColumns = 32;

  // Packs 16 rows by 32 columns of W: into `forward` 16 pairs of columns, 64 words apart, of 16
  // rows each; into `backward` 8 pairs of rows of 32 columns each. Every store fills 64 bytes. On
  // cache lines it does not read them first and leaves the cache to what is read sooner: the copies
  // of all weights are larger than a cache. The caller ends with a store fence.
  static void pack_weight_block(const float* w, std::int64_t ld, bf16* forward, bf16* backward) {
    with_weight_store(forward, backward, [&](auto store) {
      __m512i rows[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) rows[r] = load_rounded(w + r * ld);
#pragma GCC unroll 8
      for (int r = 0; r < 16; r += 2) {
        store(backward + r * 32, interleaved(rows[r], rows[r + 1], 0));
        store(backward + r * 32 + 32, interleaved(rows[r], rows[r + 1], 16));
      }
      transpose(rows);
#pragma GCC unroll 16
      for (int pair = 0; pair < 16; ++pair) store(forward + pair * 64, rows[pair]);
    });
  }
  // The same in fp32, single columns in place of pairs.
  static void pack_weight_block(const float* w, std::int64_t ld, float* forward, float* backward) {
    with_weight_store(forward, backward, [&](auto store) {
      for (int half = 0; half < 32; half += 16) {
        __m512i rows[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) {
          rows[r] = _mm512_loadu_si512(w + r * ld + half);
          store(backward + r * 32 + half, rows[r]);
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int c = 0; c < 16; ++c) store(forward + (half + c) * 32, rows[c]);
      }
    });
  }
  // Calls body(store), where store(p, x) writes 64 bytes.
  template <typename Body>
  static void with_weight_store(const void* forward, const void* backward, Body&& body) {
    const auto address =
        reinterpret_cast<std::uintptr_t>(forward) | reinterpret_cast<std::uintptr_t>(backward);
    if (address % 64 == 0) {
      body([](void* p, __m512i x) { _mm512_stream_si512(static_cast<__m512i*>(p), x); });
    } else {
      body([](void* p, __m512i x) { _mm512_storeu_si512(p, x); });
    }
  }

  // Packs 32 rows by 32 columns of W as right operands of AMX: in `forward` the columns are the
  // summed dimension, in `backward` the rows. Stores as pack_weight_block.
  static void pack_weight_blocks(const float* w, std::int64_t ld, bf16* forward, bf16* backward) {
    with_weight_store(forward, backward, [&](auto store) {
      for (int half = 0; half < 2; ++half, w += 16 * ld, forward += 512, backward += 256) {
        __m512i rows[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) rows[r] = load_rounded(w + r * ld);
#pragma GCC unroll 8
        for (int r = 0; r < 16; r += 2) {
          store(backward + r * 16, interleaved(rows[r], rows[r + 1], 0));
          store(backward + r * 16 + 512, interleaved(rows[r], rows[r + 1], 16));
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int pair = 0; pair < 16; ++pair) store(forward + pair * 32, rows[pair]);
      }
    });
  }

  // The transpose of 32 x 32 floats, whose rows in `out` are `stride` floats apart.
  static void transpose_floats(const float* in, float* out, std::int64_t stride) {
    for (int row = 0; row < 32; row += 16) {
      for (int column = 0; column < 32; column += 16) {
        __m512i words[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) {
          words[r] = _mm512_loadu_si512(in + (row + r) * 32 + column);
        }
        transpose(words);
#pragma GCC unroll 16
        for (int c = 0; c < 16; ++c) {
          _mm512_storeu_si512(out + (column + c) * stride + row, words[c]);
        }
      }
    }
  }

  // Interleaves 32 columns of two rows: the first 16 to `low`, the others to `high`.
  static void interleave_halves(const bf16* row, const bf16* next, bf16* low, bf16* high) {
    const __m512i a = _mm512_loadu_si512(row);
    const __m512i b = _mm512_loadu_si512(next);
    _mm512_storeu_si512(low, interleaved(a, b, 0));
    _mm512_storeu_si512(high, interleaved(a, b, 16));
  }
  static void interleave_halves(const float* row, const float* next, bf16* low, bf16* high) {
    const __m512i a = load_rounded(row);
    const __m512i b = load_rounded(next);
    _mm512_storeu_si512(low, interleaved(a, b, 0));
    _mm512_storeu_si512(high, interleaved(a, b, 16));
  }

  // 32 floats rounded to bf16.
  static __m512i load_rounded(const float* p) {
    const __m256i low = _mm512_cvtepi32_epi16(round_to_bf16_words(_mm512_loadu_ps(p)));
    const __m256i high = _mm512_cvtepi32_epi16(round_to_bf16_words(_mm512_loadu_ps(p + 16)));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  static void store_fence() { _mm_sfence(); }

  // Word 2 i of the result is word from + i of `row`, word 2 i + 1 is word from + i of `next`.
  static __m512i interleaved(__m512i row, __m512i next, int from) {
    const __m512i rising =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i index = _mm512_add_epi16(rising, _mm512_set1_epi16(static_cast<short>(from)));
    return _mm512_permutex2var_epi16(row, index, next);
  }

  // Interleaves pairs of rows, then transposes them as words of 32 bits.
  static void transpose_block(const bf16* in, std::int64_t ld, bf16* out) {
    for (int half = 0; half < 2; ++half) {
      __m512i pairs[16];
#pragma GCC unroll 16
      for (int p = 0; p < 16; ++p) {
        const bf16* row = in + 2 * p * ld + 16 * half;
        const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
        const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + ld));
        pairs[p] = interleaved(_mm512_castsi256_si512(a), _mm512_castsi256_si512(b), 0);
      }
      transpose(pairs);
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) _mm512_storeu_si512(out + (16 * half + c) * 32, pairs[c]);
    }
  }

  template <int W>
  static void copy_row(const float* row, float* out) {
    if constexpr (W == 32) {
      _mm512_storeu_ps(out, _mm512_loadu_ps(row));
      _mm512_storeu_ps(out + 16, _mm512_loadu_ps(row + 16));
    } else {
      static_assert(W <= 16);
      _mm512_storeu_ps(out, _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << W) - 1u), row));
    }
  }

  template <int W>
  static void interleave_rows(const bf16* row, const bf16* next, bf16* out) {
    if constexpr (W == 32) {
      const __m512i a = _mm512_loadu_si512(row);
      const __m512i b = _mm512_loadu_si512(next);
      _mm512_storeu_si512(out, interleaved(a, b, 0));
      _mm512_storeu_si512(out + 32, interleaved(a, b, 16));
    } else {
      static_assert(W <= 16);
      const __mmask16 words = static_cast<__mmask16>((1u << W) - 1u);
      const __m256i a = _mm256_maskz_loadu_epi16(words, row);
      const __m256i b = _mm256_maskz_loadu_epi16(words, next);
      _mm512_storeu_si512(out,
                          interleaved(_mm512_castsi256_si512(a), _mm512_castsi256_si512(b), 0));
    }
  }
};

struct Vectors512 {
  using Packing = Packing512;
  using Vec = __m512;
  static constexpr int kLanes = 16;

  static __mmask16 lanes(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static Vec load_part(const float* p, int count) { return _mm512_maskz_loadu_ps(lanes(count), p); }
  static void store_float(float* p, Vec x) { _mm512_storeu_ps(p, x); }
};

// For policies that store bf16.
struct Bf16Vectors512 : Vectors512 {
  static void store(bf16* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_to_bf16(x));
  }
  static void store_part(bf16* p, Vec x, int count) {
    _mm256_mask_storeu_epi16(p, lanes(count), round_to_bf16(x));
  }
};

}  // namespace
}  // namespace tilewright::kernels
