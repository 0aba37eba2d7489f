// Packing into panels, for the files of one instruction set to include: everything is in an unnamed
// namespace and is compiled with that file's flags.
//
// A packed matrix is a row of panels; a panel holds W columns of the operand, group after group
// along the summed dimension, G summed elements side by side:
//   panel[group][column][G]        G = 1 for float, 2 for bf16 (what VDPBF16PS multiplies at once)
#pragma once

#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels {
namespace {

using runtime::bf16;

inline std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// As runtime::to_bf16, repeated here because a shared inline function may not be compiled with the
// flags of one instruction set.
inline void narrow(float x, bf16& out) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}
inline void narrow(float x, float& out) { out = x; }
inline void narrow(bf16 x, bf16& out) { out = x; }

inline float widen(bf16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}
inline float widen(float x) { return x; }

// One panel of up to W columns: rows of `in` are the summed dimension.
template <int W, int G, typename In, typename T>
void pack_panel(const In* in, std::int64_t ld, std::int64_t rows, std::int64_t padded_rows,
                std::int64_t width, T* out) {
  std::int64_t row = 0;
  if (width == W) {
    for (; row + G <= rows; row += G, out += W * G) {
      for (int c = 0; c < W; ++c) {
        for (int g = 0; g < G; ++g) narrow(in[(row + g) * ld + c], out[c * G + g]);
      }
    }
  }
  for (; row < padded_rows; row += G, out += W * G) {
    for (int c = 0; c < W; ++c) {
      for (int g = 0; g < G; ++g) {
        T value{};
        if (c < width && row + g < rows) narrow(in[(row + g) * ld + c], value);
        out[c * G + g] = value;
      }
    }
  }
}

// Where an instruction set interleaves two rows of a whole panel faster than plain code, it says
// so: Fast::row_pair<W>(row, next_row, out) may write up to one vector past the panel's group,
// which the next group (or the gap behind a panel, kPanelGap) takes.
struct PlainRows {
  static constexpr bool kWeightBlocks = false;

  static void transpose_block(const bf16* in, std::int64_t ld, bf16* out) {
    for (int r = 0; r < 32; ++r) {
      for (int c = 0; c < 32; ++c) out[c * 32 + r] = in[r * ld + c];
    }
  }

  template <int W, typename T>
  static void one_row(const T* row, T* out) {
    __builtin_memcpy(out, row, W * sizeof(T));
  }
  template <int W, typename T>
  static void row_pair(const T* row, const T* next, T* out) {
    for (int c = 0; c < W; ++c) {
      out[2 * c] = row[c];
      out[2 * c + 1] = next[c];
    }
  }
};

// Rows that are packed before the next panel's turn: few enough that rows whose distance is a power
// of two do not push each other out of the L1 cache.
constexpr std::int64_t kRowsAtOnce = 16;
// A panel reads a line or less of each row, which no hardware prefetcher follows: fetched this many
// rows ahead (past the matrix's end too: a prefetch cannot fault).
constexpr std::int64_t kRowsAhead = 48;

template <class Fast, int W, int G, typename T>
void pack_tokens(const T* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns, T* out,
                 std::int64_t stride) {
  for (std::int64_t t = 0; t < tokens; t += kRowsAtOnce) {
    const std::int64_t rows = tokens - t < kRowsAtOnce ? tokens - t : kRowsAtOnce;
    const T* from = in + t * ld;
    T* to = out + t * W;
    for (std::int64_t c = 0; c < columns; c += W, to += stride) {
      const std::int64_t width = columns - c < W ? columns - c : W;
      std::int64_t row = 0;
      if (width == W) {
        if constexpr (G == 1) {
          for (; row < rows; ++row) {
            __builtin_prefetch(from + (row + kRowsAhead) * ld + c);
            Fast::template one_row<W>(from + row * ld + c, to + row * W);
          }
        } else {
          for (; row + 2 <= rows; row += 2) {
            __builtin_prefetch(from + (row + kRowsAhead) * ld + c);
            __builtin_prefetch(from + (row + kRowsAhead + 1) * ld + c);
            Fast::template row_pair<W>(from + row * ld + c, from + (row + 1) * ld + c,
                                       to + row * W);
          }
        }
      }
      pack_panel<W, G>(from + row * ld + c, ld, rows - row, round_up(rows - row, G), width,
                       to + row * W);
    }
  }
}

// sums[c] += in[t, c], a strip of columns at a time so that the sums stay in registers.
template <typename T>
void add_rows(const T* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
              float* sums) {
  constexpr int kStrip = 128;
  std::int64_t c = 0;
  for (; c + kStrip <= columns; c += kStrip) {
    float strip[kStrip];
    for (int i = 0; i < kStrip; ++i) strip[i] = sums[c + i];
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T* row = in + t * ld + c;
#pragma GCC unroll 16
      for (int i = 0; i < kStrip; ++i) strip[i] += widen(row[i]);
    }
    for (int i = 0; i < kStrip; ++i) sums[c + i] = strip[i];
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = c; i < columns; ++i) sums[i] += widen(in[t * ld + i]);
  }
}

// W [n, k] in fp32 into `forward` (columns of the operand: rows of W; summed: k) and `backward`
// (columns: k; summed: rows of W), each padded to whole panels and to the granularity.
template <class Fast, int W, int G, int kGranularity, typename T>
void pack_weight_panels(const float* w, std::int64_t n, std::int64_t k, std::int64_t begin,
                        std::int64_t end, T* forward, T* backward) {
  const std::int64_t padded_k = round_up(k, kGranularity);
  const std::int64_t padded_n = round_up(n, kGranularity);
  if constexpr (Fast::kWeightBlocks && W == 32 && G == 2) {
    if (n % 32 == 0 && k % 32 == 0) {  // no padding anywhere
      for (std::int64_t row = begin; row < end; row += 16) {
        for (std::int64_t c = 0; c < k; c += 32) {
          Fast::pack_weight_block(w + row * k + c, k,
                                  forward + row / W * W * k + c * W + row % W * G,
                                  backward + c * n + row * W);
        }
      }
      return;
    }
  }
  for (std::int64_t row = begin; row < end; row += W) {
    T* out = forward + row * padded_k;
    const std::int64_t width = n - row < W ? n - row : W;
    for (std::int64_t group = 0; group < padded_k / G; ++group) {
      for (int c = 0; c < W; ++c) {
        for (int g = 0; g < G; ++g, ++out) {
          T value{};
          if (c < width && group * G + g < k) narrow(w[(row + c) * k + group * G + g], value);
          *out = value;
        }
      }
    }
  }
  const std::int64_t padded_end = end == n ? padded_n : end;
  for (std::int64_t c = 0; c < k; c += W) {
    const std::int64_t width = k - c < W ? k - c : W;
    pack_panel<W, G>(w + begin * k + c, k, end - begin, padded_end - begin, width,
                     backward + c * padded_n + begin * W);
  }
}

}  // namespace
}  // namespace tilewright::kernels
