// What an instruction set offers to the linear layers: packers and block multiplications over plain
// pointers. linear.h cuts the work into blocks and shares them between threads; the files
// gemm_<isa>.cpp compute a block. Plain data only, so that those files share no code with others.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {

// y[rows, columns] = a[rows, k] B + bias for one block; B is packed in panels of `nr` columns.
template <typename T>
struct ForwardBlock {
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* panels = nullptr;      // the block's first panel
  std::int64_t panel_stride = 0;  // elements from a panel to the next
  const float* bias = nullptr;    // of the block's first column, or null
  T* y = nullptr;
  std::int64_t ldy = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t k = 0;
};

// A run of tokens of one shard, and what becomes of its sum. The sums of the shards are combined
// like the digits of a binary counter: slots 0 .. level - 1 hold finished subtrees, rising from
// left to right. What is born and merged within a chunk is kept near: in slots that all register
// tiles share, so they stay in the L1 cache. Only what outlives the chunk has slots of its own.
struct Segment {
  std::int64_t first_group = 0;  // in the packed chunk, in groups of `granularity` tokens
  std::int64_t groups = 0;
  int level = 0;        // the slot of this shard's running sum
  int near_merges = 0;  // then: sum = near slot[level - 1] + sum, and so on, this many times
  int merges = 0;       // then the same with the slots below, this many times
  bool fresh = true;    // start from zero; else go on from slot[level]
  bool near = false;    // the result is merged within this chunk
  bool last = false;    // the result is the gradient: store it to dw instead of a slot
};

// dw[rows, columns] += a^T b over one chunk of packed tokens, for one block of dw.
template <typename T>
struct WeightBlock {
  const T* a = nullptr;  // dy, panels of `mr` columns
  const T* b = nullptr;  // x, panels of `nr` columns
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  const Segment* segments = nullptr;
  std::int64_t segment_count = 0;
  float* slots = nullptr;  // [b panel][a panel][slot_count][mr * nr]
  std::int64_t slot_count = 0;
  float* near = nullptr;  // [slot_count][mr * nr]
  float* dw = nullptr;
  std::int64_t ldw = 0;
  std::int64_t rows = 0;     // of dw: columns of dy
  std::int64_t columns = 0;  // of dw: columns of x
  // What is packed after this block: `next_count` rows of x, a line each, to be fetched to L2.
  const T* next = nullptr;
  std::int64_t next_stride = 0;
  std::int64_t next_count = 0;
};

// Elements between two panels of a packed chunk: packers may write a vector past a panel's end, and
// panels whose distance is no multiple of 4 KiB do not compete for the same sets of the L1 cache.
inline constexpr std::int64_t kPanelGap = 96;

template <typename T>
struct Engine {
  const char* name = "";
  int mr = 0;           // rows of a register tile
  int nr = 0;           // columns of a register tile, and of a packed panel; divides 64
  int granularity = 1;  // summed elements per dot product: packed data are padded to it with zeros

  void (*forward)(const ForwardBlock<T>&) = nullptr;
  void (*weight)(const WeightBlock<T>&) = nullptr;
  // Packs `tokens` rows of `columns` columns into the groups from `out` on, panels `stride` apart;
  // pads tokens to the granularity and columns to the panel with zeros.
  void (*pack_dy)(const T* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns, T* out,
                  std::int64_t stride) = nullptr;
  void (*pack_x)(const T* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns, T* out,
                 std::int64_t stride) = nullptr;
  // sums[c] += in[t, c] over the tokens in rising order.
  void (*add_rows)(const T* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                   float* sums) = nullptr;
  // Multiplies and adds on operands that never leave the registers, `rounds` times over a tile;
  // returns how many floating-point operations that was. What no product can exceed.
  double (*peak)(std::int64_t rounds) = nullptr;
  // Rows [begin, end) of W [n, k], see Ops::pack_weight.
  void (*pack_weight)(const float* w, std::int64_t n, std::int64_t k, std::int64_t begin,
                      std::int64_t end, T* forward, T* backward) = nullptr;
};

extern const Engine<float> kAvx2Float;
extern const Engine<float> kAvx512Float;
extern const Engine<runtime::bf16> kAvx2Bf16;
extern const Engine<runtime::bf16> kAvx512Widened;
extern const Engine<runtime::bf16> kAvx512Bf16;
extern const Engine<runtime::bf16> kAmx;
extern const Engine<runtime::bf16> kAmxTwin;  // the AMX kernels on tiles of plain C++

}  // namespace tilewright::kernels
