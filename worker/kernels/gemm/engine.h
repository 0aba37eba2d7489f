// The GEMM interface of an instruction set: packers and block products on plain pointers.
// linear.cpp cuts the work into blocks and hands them to threads; gemm_<isa>.cpp computes a block.
// Plain data only, so that those files share no code with others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {

// y[rows, columns] = a[rows, k] B + bias for one block; B is packed in panels of `nr` columns.
template <typename Element>
struct ForwardBlock {
  const Element* a = nullptr;
  std::int64_t lda = 0;
  const Element* panels = nullptr;  // the block's first panel
  std::int64_t panel_stride = 0;    // elements between panels
  const float* bias = nullptr;      // of the block's first column, or null
  Element* y = nullptr;
  std::int64_t ldy = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t k = 0;
  std::byte* scratch = nullptr;  // Engine::forward_scratch bytes
};

// Consecutive tokens of one shard, and the destination of their sum. The sums of the shards are
// combined like the digits of a binary counter: slots 0 .. level - 1 hold finished subtrees from
// left to right. Sums that are created and merged within one chunk use the local slots, which all
// register tiles share and which stay in the L1 cache. Sums that outlive the chunk have slots per
// register tile.
struct Segment {
  std::int64_t first_group = 0;  // in the packed chunk, in groups of `granularity` tokens
  std::int64_t groups = 0;
  int level = 0;         // slot of this shard's running sum
  int local_merges = 0;  // number of merges with local slots: sum = local[level - 1] + sum, ...
  int merges = 0;        // number of merges with the slots below those
  bool fresh = true;     // start from zero, else from slot[level]
  bool local = false;    // store the sum to a local slot
  bool last = false;     // the sum is the gradient: store it to dw instead of a slot
};

inline constexpr std::int64_t kCacheLine = 64;  // bytes

// Rows that are read after a block and prefetched into L2 during it.
template <typename Element>
struct NextRows {
  const Element* first = nullptr;
  std::int64_t stride = 0;  // elements between rows
  std::int64_t rows = 0;
  std::int64_t lines = 0;  // cache lines of each row
};

// dw[rows, columns] += a^T b over one chunk of packed tokens, for one block of dw.
template <typename Element>
struct WeightBlock {
  const Element* a = nullptr;  // dy, panels of `mr` columns
  const Element* b = nullptr;  // x, panels of `nr` columns
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  const Segment* segments = nullptr;
  std::int64_t segment_count = 0;
  float* slots = nullptr;  // [b panel][a panel][slot_count][mr * nr]
  std::int64_t slot_count = 0;
  float* local = nullptr;  // [slot_count][mr * nr]; per a panel if Engine::packs_x_once
  float* dw = nullptr;
  std::int64_t ldw = 0;
  bool transposed = false;   // only if Engine::packs_x_once: dw is [columns, rows]
  std::int64_t rows = 0;     // of dw: columns of dy
  std::int64_t columns = 0;  // of dw: columns of x
  NextRows<Element> next;
};

// Gap between two panels of a packed chunk, in elements. Packers may write one vector past the end
// of a panel. The gap also keeps the distance of panels from being a multiple of 4 KiB, because
// such panels compete for the same sets of the L1 cache.
inline constexpr std::int64_t kPanelPadding = 96;

template <typename Element>
struct Engine {
  const char* name = "";
  int mr = 0;           // rows of a register tile
  int nr = 0;           // columns of a register tile, and of a packed panel; divides 64
  int granularity = 1;  // summed elements per dot product; packed data is zero-padded to it

  // Null in the engines of the reference, whose linear layers are plain loops (gemm/ref.cpp).
  void (*forward)(const ForwardBlock<Element>&) = nullptr;
  // Bytes of scratch for a block with the summed dimension k; null: none.
  std::size_t (*forward_scratch)(std::int64_t k) = nullptr;
  // The panels of a block stay in the L2 cache and are multiplied by many rows. false: the rows of
  // a block stay there and are multiplied by many panels.
  bool panels_stay_in_l2 = false;
  // dW: x is packed once, before its products, and a chunk of dy fills the L2 cache. If x has more
  // columns than dy, they change places, and the result is transposed. false: each block packs the
  // panels of x for itself, and a panel fits in the L1 cache.
  bool packs_x_once = false;
  void (*weight)(const WeightBlock<Element>&) = nullptr;
  // Packs `tokens` rows of `columns` columns into panels that are `stride` elements apart, starting
  // at `out`. Zero-pads the tokens to the granularity and the columns to the panel.
  void (*pack_dy)(const Element* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                  Element* out, std::int64_t stride) = nullptr;
  void (*pack_x)(const Element* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                 Element* out, std::int64_t stride) = nullptr;
  // sums[c] += in[t, c] over the tokens in ascending order.
  void (*add_rows)(const Element* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                   float* sums) = nullptr;
  // Multiplies and adds a register tile `rounds` times on operands that stay in registers. Returns
  // the number of floating-point operations; their rate is the upper bound for any product.
  double (*peak)(std::int64_t rounds) = nullptr;
  // Rows [begin, end) of W [n, k], see Ops::pack_weight.
  void (*pack_weight)(const float* w, std::int64_t n, std::int64_t k, std::int64_t begin,
                      std::int64_t end, Element* forward, Element* backward) = nullptr;
};

}  // namespace tilewright::kernels
