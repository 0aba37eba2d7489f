// Computes dropout masks (bit layout: dropout/dropout.h) and applies them to a row. Also holds the
// loop over the vectors of a row.
#include "worker/kernels/integers.h"
#include "worker/kernels/kernel_table.h"

namespace tilewright::kernels {
namespace {

// One vector of even counters and one of odd counters yield kWordLanes / 4 blocks of 64 columns;
// the words of the even counters are the even pairs of columns.
void dropout_masks(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                   std::int32_t head, std::int64_t columns, std::uint64_t* masks) {
  constexpr int kBlocks = kWordLanes / 4;
  const std::int64_t blocks = ceil_div(columns, kDropoutBlock);
  const Words c1 = words(static_cast<std::uint32_t>(row));
  const Words c2 = words(stream.site | static_cast<std::uint32_t>(head) << 16);
  const Words c3 = words(static_cast<std::uint32_t>(example));
  const PhiloxKeys keys(stream.key);
  for (std::int64_t block = 0; block < blocks; block += kBlocks) {
    const auto first = static_cast<std::uint32_t>(block * 8);
    PhiloxState states[2] = {{{iota_words(first, 2), c1, c2, c3}},
                             {{iota_words(first + 1, 2), c1, c2, c3}}};
    philox<0, kPhiloxRounds>(states, keys);
    std::uint64_t mask[2] = {0, 0};
    if (stream.threshold < 65536) {
      for (int q = 0; q < 4; ++q) {
        const std::uint32_t kept =
            greater_equal_mask(low_halves(states[0].c[q], states[1].c[q]), stream.threshold);
        mask[0] |= std::uint64_t{kept & 0xffffu} << (16 * q);
        mask[1] |= std::uint64_t{kept >> 16} << (16 * q);
      }
    }
    for (int i = 0; i < kBlocks && block + i < blocks; ++i) masks[block + i] = mask[i];
  }
}

// The mask of kLanes columns starting at `column`, a multiple of kLanes (little-endian words).
inline Mask mask_at(const std::uint64_t* masks, std::int64_t column) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, reinterpret_cast<const char*>(masks) + column / 8, kLanes / 8);
  return mask_from_bits(bits);
}

// Dropout masks of kRows rows, for kernels whose rows are tokens.
template <int kRows = 1>
class RowMasks {
 public:
  RowMasks(const DropoutStream& stream, RowIdentity identity, std::int64_t columns)
      : stream_(stream), identity_(identity), columns_(columns), scale_(broadcast(stream.scale)) {}
  // Draws the masks of the rows [row, row + kRows).
  void draw(std::int64_t row) {
    if (stream_.threshold == 0) return;
    for (int r = 0; r < kRows; ++r) {
      dropout_masks(stream_, identity_.example[row + r], identity_.position[row + r], 0, columns_,
                    bits_[r]);
    }
  }
  // x: the kLanes columns starting at `column`, a multiple of kLanes, of row `row` + r.
  template <bool kDropout>
  Vec apply(std::int64_t column, Vec x, int r = 0) const {
    if constexpr (!kDropout) return x;
    return select_or_zero(mask_at(bits_[r], column), x * scale_);
  }

 private:
  const DropoutStream& stream_;
  RowIdentity identity_;
  std::int64_t columns_;
  Vec scale_;
  std::uint64_t bits_[kRows][kMaxHidden / kDropoutBlock];
};

// Calls body(column, n) for each vector of a row of H columns; n is kLanes, or less in the last
// one.
template <typename Body>
inline void for_vectors(std::int64_t H, Body&& body) {
  std::int64_t h = 0;
  for (; h + kLanes <= H; h += kLanes) body(h, std::int64_t{kLanes});
  if (h < H) body(h, H - h);
}

// Loads and stores n <= kLanes elements; full vectors without a mask.
template <typename Activation>
inline Vec load_n(const Activation* p, std::int64_t n) {
  return n == kLanes ? load(p) : load_first(p, n);
}
template <typename Activation>
inline void store_n(Activation* p, Vec x, std::int64_t n) {
  n == kLanes ? store(p, x) : store_first(p, x, n);
}

}  // namespace
}  // namespace tilewright::kernels
