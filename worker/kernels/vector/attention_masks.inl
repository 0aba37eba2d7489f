// Dropout masks of attention, whose rows are the keys and columns the queries of one head.
namespace tilewright::kernels {
namespace {

// Columns whose masks are one number of a row, and numbers in a block.
inline constexpr std::int64_t kMaskColumns = 16;
inline constexpr std::int64_t kMaskNumbers = kDropoutBlock / kMaskColumns;

// The masks of a block of columns for pairs of successive rows: 32 bits for every kMaskColumns
// columns, those of the pair's second row in the upper half.
//
// The first three rounds, for which most words depend only on the row or only on the column, are
// computed once for all rows or columns.
class BlockMasks {
 public:
  BlockMasks(const DropoutStream& stream, std::int32_t example, std::int64_t head,
             std::int64_t block)
      : threshold_(stream.threshold), keys_(stream.key) {
    const std::uint64_t site = std::uint64_t{kPhiloxMultipliers[1]} *
                               (stream.site | static_cast<std::uint32_t>(head) << 16);
    row_xor_ = static_cast<std::uint32_t>(site >> 32) ^ keys_.first[0];
    const Words m0 = words(kPhiloxMultipliers[0]);
    const Words m1 = words(kPhiloxMultipliers[1]);
    const auto first = static_cast<std::uint32_t>(block * 8);
    for (std::uint32_t odd = 0; odd < 2; ++odd) {
      const Words p0 = multiply(m0, block_words(first + odd));
      const Words c2 = exclusive_or(high_half(p0), words(static_cast<std::uint32_t>(example)),
                                    words(keys_.second[0]));
      const Words p1 = multiply(m1, c2);
      const Words c0 = exclusive_or(high_half(p1), words(static_cast<std::uint32_t>(site)),
                                    words(keys_.first[1]));
      const Words q0 = multiply(m0, c0);
      columns_[odd] = {exclusive_or(p0, words(keys_.second[1])),
                       exclusive_or(p1, words(keys_.first[2])),
                       exclusive_or(high_half(q0), words(keys_.second[2])), q0};
    }
  }

  // Draws the masks of `rows` rows from `first`, rounded up to at most a multiple of four. Those of
  // number q begin at masks[q * stride].
  void draw(std::int64_t first, std::int64_t rows, std::int64_t stride,
            std::uint32_t* masks) const {
    for (std::int64_t i = 0; i < rows; i += kVectors * kRows) {
      if (threshold_ >= 65536) {
        write(masks + i / 2, stride, [](int, int) { return 0u; });
        continue;
      }
      Words drawn[kVectors][kMaskNumbers];
      draw_rows(static_cast<std::uint32_t>(first + i), drawn);
      write(masks + i / 2, stride,
            [&](int v, int q) { return greater_equal_mask(drawn[v][q], threshold_); });
    }
  }

 private:
  static constexpr int kRows = kWordLanes / 4;  // of a vector of counters
  static constexpr int kVectors = 2;            // of even and of odd counters, to hide the latency
  // What the columns add to the third round: c2 to its input, the others to its output.
  struct Columns {
    Words c2, c0, next_c2, c3;
  };

  void draw_rows(std::uint32_t first, Words (&drawn)[kVectors][kMaskNumbers]) const {
    const Words m0 = words(kPhiloxMultipliers[0]);
    const Words m1 = words(kPhiloxMultipliers[1]);
    PhiloxState states[2 * kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const auto row = first + static_cast<std::uint32_t>(v * kRows);
      const Words p0 = multiply(m0, exclusive_or(row_words(row), words(row_xor_)));
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const Columns& c = columns_[odd];
        const Words p1 = multiply(m1, exclusive_or(high_half(p0), c.c2));
        states[2 * v + odd] = {
            {exclusive_or(high_half(p1), c.c0), p1, exclusive_or(p0, c.next_c2), c.c3}};
      }
    }
    constexpr int kLast = kPhiloxRounds - 1;
    philox<3, kLast>(states, keys_);
    const Words key0 = in_both_halves(keys_.first[kLast]);
    const Words key1 = in_both_halves(keys_.second[kLast]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const PhiloxState& even = states[2 * v];
      const PhiloxState& odd = states[2 * v + 1];
      const Words p0[2] = {multiply(m0, even.c[0]), multiply(m0, odd.c[0])};
      const Words p1[2] = {multiply(m1, even.c[2]), multiply(m1, odd.c[2])};
      drawn[v][0] = exclusive_or(high_halves(p1[0], p1[1]), low_halves(even.c[1], odd.c[1]), key0);
      drawn[v][1] = low_halves(p1[0], p1[1]);
      drawn[v][2] = exclusive_or(high_halves(p0[0], p0[1]), low_halves(even.c[3], odd.c[3]), key1);
      drawn[v][3] = low_halves(p0[0], p0[1]);
    }
  }

  // bits_of(v, q): the bits of the rows of vector v.
  template <typename Bits>
  static void write(std::uint32_t* masks, std::int64_t stride, Bits bits_of) {
#pragma GCC unroll 4
    for (int q = 0; q < kMaskNumbers; ++q) {
      if constexpr (kRows == 2) {
        for (int v = 0; v < kVectors; ++v) masks[q * stride + v] = bits_of(v, q);
      } else {
        masks[q * stride] = bits_of(0, q) | bits_of(1, q) << 16;
      }
    }
  }

  std::uint32_t threshold_;
  std::uint32_t row_xor_;
  PhiloxKeys keys_;
  Columns columns_[2];
};

}  // namespace
}  // namespace tilewright::kernels
