// Packs operands into panels. Included by the files of one instruction set and compiled with their
// flags, so everything is in an unnamed namespace.
//
// A packed matrix is a row of panels. A panel holds W columns of the operand in groups of G summed
// elements:
//   panel[group][column][G]        G = 1 for float, 2 for bf16 (the operands of one VDPBF16PS)
#pragma once

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/integers.h"

namespace tilewright::kernels {
namespace {

using runtime::bf16;

inline void narrow(float x, bf16& out) { out = runtime::to_bf16(x); }
inline void narrow(float x, float& out) { out = x; }
inline void narrow(bf16 x, bf16& out) { out = x; }

// Prefetches the lines of NextRows, some at each call: many at once would occupy the buffers for
// cache misses, and the product would wait for its operands.
template <typename Element>
class NextLines {
 public:
  explicit NextLines(const NextRows<Element>& next)
      : next_(next), left_(next.rows * next.lines), line_(start()) {}
  std::int64_t left() const { return left_; }
  void prefetch(std::int64_t lines) {
    for (; lines > 0 && left_ > 0; --lines, --left_) {
      __builtin_prefetch(line_, 0, 2);
      line_ += kCacheLine;
      if (++column_ == next_.lines) {
        column_ = 0;
        next_.first += next_.stride;
        line_ = start();
      }
    }
  }

 private:
  const char* start() const { return reinterpret_cast<const char*>(next_.first); }
  NextRows<Element> next_;
  std::int64_t left_;
  std::int64_t column_ = 0;  // line of the row
  const char* line_;
};

// Packs one panel of up to W columns; the rows of `in` are the summed dimension.
template <int W, int G, typename In, typename Element>
void pack_panel(const In* in, std::int64_t ld, std::int64_t rows, std::int64_t padded_rows,
                std::int64_t width, Element* out) {
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
        Element value{};
        if (c < width && row + g < rows) narrow(in[(row + g) * ld + c], value);
        out[c * G + g] = value;
      }
    }
  }
}

// Packing in plain code. An instruction set may replace it by a type with the same functions.
// Packing::interleave_rows<W>(row, next_row, out) may write up to one vector past its group: the
// next group, or the gap behind the panel (kPanelPadding), takes it. Packing::pack_weight_block,
// for panels of Packing::kBlockColumns columns, is optional.
struct PortablePacking {
  static void transpose_block(const bf16* in, std::int64_t ld, bf16* out) {
    for (int r = 0; r < 32; ++r) {
      for (int c = 0; c < 32; ++c) out[c * 32 + r] = in[r * ld + c];
    }
  }

  static void transpose_floats(const float* in, float* out, std::int64_t stride) {
    for (int r = 0; r < 32; ++r) {
      for (int c = 0; c < 32; ++c) out[c * stride + r] = in[r * 32 + c];
    }
  }
  template <typename In>
  static void interleave_halves(const In* row, const In* next, bf16* low, bf16* high) {
    for (int c = 0; c < 16; ++c) {
      narrow(row[c], low[2 * c]);
      narrow(next[c], low[2 * c + 1]);
      narrow(row[16 + c], high[2 * c]);
      narrow(next[16 + c], high[2 * c + 1]);
    }
  }
  static void store_fence() {}
  static void pack_weight_blocks(const float* w, std::int64_t ld, bf16* forward, bf16* backward) {
    for (int r = 0; r < 32; ++r) {
      for (int c = 0; c < 32; ++c) {
        narrow(w[r * ld + c], forward[r / 16 * 512 + c / 2 * 32 + r % 16 * 2 + c % 2]);
        narrow(w[r * ld + c], backward[c / 16 * 512 + r / 2 * 32 + c % 16 * 2 + r % 2]);
      }
    }
  }

  template <int W, typename Element>
  static void copy_row(const Element* row, Element* out) {
    __builtin_memcpy(out, row, W * sizeof(Element));
  }
  template <int W, typename Element>
  static void interleave_rows(const Element* row, const Element* next, Element* out) {
    for (int c = 0; c < W; ++c) {
      out[2 * c] = row[c];
      out[2 * c + 1] = next[c];
    }
  }
};

// Rows packed into one panel before the next panel: few enough that rows at a distance of a power
// of two do not evict each other from the L1 cache.
constexpr std::int64_t kRowBlock = 16;
// A panel reads at most a line of each row, a pattern that hardware prefetchers miss: prefetch this
// many rows ahead (also beyond the end of the matrix, because a prefetch cannot fault).
constexpr std::int64_t kPrefetchDistance = 48;

template <class Packing, int W, int G, typename Element>
void pack_tokens(const Element* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                 Element* out, std::int64_t stride) {
  for (std::int64_t t = 0; t < tokens; t += kRowBlock) {
    const std::int64_t rows = tokens - t < kRowBlock ? tokens - t : kRowBlock;
    const Element* from = in + t * ld;
    Element* to = out + t * W;
    for (std::int64_t c = 0; c < columns; c += W, to += stride) {
      const std::int64_t width = columns - c < W ? columns - c : W;
      std::int64_t row = 0;
      if (width == W) {
        if constexpr (G == 1) {
          for (; row < rows; ++row) {
            __builtin_prefetch(from + (row + kPrefetchDistance) * ld + c);
            Packing::template copy_row<W>(from + row * ld + c, to + row * W);
          }
        } else {
          for (; row + 2 <= rows; row += 2) {
            __builtin_prefetch(from + (row + kPrefetchDistance) * ld + c);
            __builtin_prefetch(from + (row + kPrefetchDistance + 1) * ld + c);
            Packing::template interleave_rows<W>(from + row * ld + c, from + (row + 1) * ld + c,
                                                 to + row * W);
          }
        }
      }
      pack_panel<W, G>(from + row * ld + c, ld, rows - row, round_up(rows - row, G), width,
                       to + row * W);
    }
  }
}

// sums[c] += in[t, c], in strips of columns whose sums stay in registers.
template <typename Element>
void add_rows(const Element* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
              float* sums) {
  constexpr int kStrip = 128;
  std::int64_t c = 0;
  for (; c + kStrip <= columns; c += kStrip) {
    float strip[kStrip];
    for (int i = 0; i < kStrip; ++i) strip[i] = sums[c + i];
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Element* row = in + t * ld + c;
#pragma GCC unroll 16
      for (int i = 0; i < kStrip; ++i) strip[i] += runtime::to_float(row[i]);
    }
    for (int i = 0; i < kStrip; ++i) sums[c + i] = strip[i];
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = c; i < columns; ++i) sums[i] += runtime::to_float(in[t * ld + i]);
  }
}

// Packs W [n, k] (fp32) into `forward` (panel columns: rows of W; summed: k) and `backward` (panel
// columns: k; summed: rows of W), each padded to whole panels and to the granularity.
template <class Packing, int W, int G, int kGranularity, typename Element>
void pack_weight_panels(const float* w, std::int64_t n, std::int64_t k, std::int64_t begin,
                        std::int64_t end, Element* forward, Element* backward) {
  const std::int64_t padded_k = round_up(k, kGranularity);
  const std::int64_t padded_n = round_up(n, kGranularity);
  if constexpr (requires { Packing::pack_weight_block(w, k, forward, backward); }) {
    static_assert(W == Packing::kBlockColumns);
    if (n % W == 0 && k % W == 0) {  // no padding
      for (std::int64_t row = begin; row < end; row += 16) {
        for (std::int64_t c = 0; c < k; c += W) {
          Packing::pack_weight_block(w + row * k + c, k,
                                     forward + row / W * W * k + c * W + row % W * G,
                                     backward + c * n + row * W);
        }
      }
      Packing::store_fence();
      return;
    }
  }
  for (std::int64_t row = begin; row < end; row += W) {
    Element* out = forward + row * padded_k;
    const std::int64_t width = n - row < W ? n - row : W;
    for (std::int64_t group = 0; group < padded_k / G; ++group) {
      for (int c = 0; c < W; ++c) {
        for (int g = 0; g < G; ++g, ++out) {
          Element value{};
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
