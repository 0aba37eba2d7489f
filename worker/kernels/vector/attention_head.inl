// What all attention kernels share: positions of heads in the activations, scratch, prefetching.
#include "worker/kernels/integers.h"
#include "worker/kernels/kernel_table.h"

namespace tilewright::kernels {
namespace {

inline constexpr float kLog2E = 1.44269504f;

// Allocates 64-byte aligned parts of one thread's scratch. With a null base it only sums the sizes.
class Scratch {
 public:
  explicit Scratch(std::byte* base) : base_(base) {}
  template <typename E>
  E* take(std::int64_t count) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(count * static_cast<std::int64_t>(sizeof(E)), 64);
    return reinterpret_cast<E*>(piece);
  }
  std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// One head of one example in the packed rows of qkv.
template <typename Activation>
struct Head {
  Head(const AttentionForward<Activation>& a, std::int64_t example, std::int64_t head)
      : D(a.head_size),
        width(a.heads * a.head_size),
        first(a.cu_seqlens[example]),
        S(a.cu_seqlens[example + 1] - first),
        keys(a.attended == nullptr ? S : a.attended[example]),
        stride(3 * width),
        offset(first * stride + head * D),
        q(a.qkv + offset),
        k(q + width),
        v(k + width),
        context_offset(first * width + head * D),
        log_sum_exp(a.log_sum_exp + head * a.cu_seqlens[a.B] + first) {
    float root[kLanes];
    store(root, broadcast(1.0f) / square_root(broadcast(static_cast<float>(D))));
    scale = root[0];
  }
  std::int64_t D, width, first, S;
  std::int64_t keys;  // number of attended tokens, the first of S
  std::int64_t stride, offset;
  const Activation *q, *k, *v;  // of the first token
  std::int64_t context_offset;
  float* log_sum_exp;  // [S]
  float scale;
};

// Calls body(head, whether another one follows) for `heads`.
template <typename Body>
inline void for_heads(Range heads, Body&& body) {
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    body(head, head + 1 < heads.end);
  }
}

// Prefetches rows of D elements.
template <bool kWrite = false, typename Element>
inline void prefetch_rows(Element* p, std::int64_t stride, std::int64_t rows, std::int64_t D) {
  for (std::int64_t i = 0; i < rows; ++i, p += stride) {
    for (std::int64_t d = 0; d < D; d += 64 / static_cast<std::int64_t>(sizeof(Element))) {
      if constexpr (kWrite) {
        prefetch_for_write(p + d);
      } else {
        prefetch(p + d);
      }
    }
  }
}

// Prefetches rows of D elements of up to five matrices in equal parts between other work: all at
// once they would occupy the core's buffers for cache misses, and products would wait for their
// operands.
template <typename Element, bool kWrite>
class RowsAhead {
 public:
  RowsAhead(std::int64_t rows, std::int64_t D, std::int64_t parts)
      : rows_(rows), D_(D), rows_per_part_(ceil_div(rows, parts)) {}
  void add(Element* first, std::int64_t stride) { matrices_[count_++] = {first, stride}; }
  void prefetch_part() {
    const std::int64_t rows = smaller(rows_per_part_, rows_);
    rows_ -= rows;
    for (int m = 0; m < count_; ++m) {
      Matrix& matrix = matrices_[m];
      prefetch_rows<kWrite>(matrix.next, matrix.stride, rows, D_);
      matrix.next += rows * matrix.stride;
    }
  }

 private:
  struct Matrix {
    Element* next;  // row
    std::int64_t stride;
  };
  Matrix matrices_[5];
  int count_ = 0;
  std::int64_t rows_;  // left
  std::int64_t D_;
  std::int64_t rows_per_part_;
};

}  // namespace
}  // namespace tilewright::kernels
