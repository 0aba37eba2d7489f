// Attention of one example and head: blocks of query rows against all keys, so that a block's
// scores are whole rows in scratch and no S x S matrix exists. Formulas: ref/attention_ref.cpp.
namespace tilewright::kernels {
namespace {

// Query rows of a block: the sums that stay in scratch between blocks (dK, dV) are read and written
// once a block. A multiple of 2.
inline constexpr std::int64_t kQueryBlock = 48;

// Pieces of one thread's scratch, each 64-byte aligned. With a null base only sizes are counted.
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

template <typename T>
struct Workspace {
  using E = Element<T>;
  static constexpr std::int64_t kPer = kPerElement<T>;
  Workspace(std::byte* base, std::int64_t S, std::int64_t D, bool backward)
      : Sp(round_up(S, kLanes)),
        Dp(round_up(D, kLanes)),
        scratch(base),
        masks(scratch.take<std::uint64_t>(2 * (round_up(S, kDropoutBlock) / kDropoutBlock))),
        left(scratch.take<E>(kQueryBlock * D / kPer)),
        keys_t(take_panels(D / kPer, Sp)),
        rows(take_panels((S + kPer - 1) / kPer, Dp)),
        scores(scratch.take<float>(kQueryBlock * Sp)),
        probabilities(scratch.take<bf16>(kPer == 2 ? kQueryBlock * Sp : 0)),
        out(scratch.take<float>(kQueryBlock * Dp)),
        left2(scratch.take<E>(backward ? kQueryBlock * D / kPer : 0)),
        values_t(take_panels(D / kPer, backward ? Sp : 0)),
        d_scores(scratch.take<float>(backward ? kQueryBlock * Sp : 0)),
        block_rows(take_panels(kQueryBlock / kPer, backward ? Dp : 0)),
        d_keys(scratch.take<float>(backward ? Sp * Dp : 0)),
        d_values(scratch.take<float>(backward ? Sp * Dp : 0)) {}
  Panels<E> take_panels(std::int64_t k, std::int64_t n) {
    return {scratch.take<E>(Panels<E>::size(k, n)), k, n};
  }
  std::int64_t Sp, Dp;  // S and D up to whole vectors
  Scratch scratch;
  std::uint64_t* masks;  // of two rows
  E* left;               // Q of the block, as A
  Panels<E> keys_t;      // K^T, as B
  Panels<E> rows;        // forward: V, backward: K, as B over keys
  float* scores;         // [kQueryBlock, Sp]
  bf16* probabilities;   // pairs: P of the block in forward, dS in backward, [kQueryBlock, Sp]
  float* out;            // O or dQ of the block
  // Backward only:
  E* left2;              // dO of the block, as A
  Panels<E> values_t;    // V^T, as B
  float* d_scores;       // [kQueryBlock, Sp]
  Panels<E> block_rows;  // dO, then Q of the block, as B over queries
  float* d_keys;         // [S, Dp]
  float* d_values;       // [S, Dp]
};

template <typename T>
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return Workspace<T>(nullptr, max_seqlen, head_size, true).scratch.used();
}

// One head of one example in the packed rows.
template <typename T>
struct Head {
  Head(const AttentionForward<T>& a, std::int64_t example, std::int64_t head)
      : D(a.head_size),
        width(a.heads * a.head_size),
        first(a.cu_seqlens[example]),
        S(a.cu_seqlens[example + 1] - first),
        keys(a.attended == nullptr ? S : a.attended[example]),
        qkv(a.qkv + first * 3 * width + head * D) {
    float root[kLanes];
    store(root, broadcast(1.0f) / square_root(broadcast(static_cast<float>(D))));
    scale = root[0];
  }
  std::int64_t D, width, first, S;
  std::int64_t keys;  // of the S tokens those that are attended to: the first
  const T* qkv;       // of the first token: Q; K is `width` further, V twice
  float scale;
};

// What forward's probabilities are stored as.
template <std::int64_t kPer>
struct Probability {
  using Type = float;
};
template <>
struct Probability<2> {
  using Type = bf16;
};
template <typename P>
inline P* pick(bf16* halves, float* floats) {
  if constexpr (sizeof(P) == 2) {
    return halves;
  } else {
    return floats;
  }
}

// Probabilities of padding: whole vectors of a row [.., Sp) that lie beyond the keys.
template <typename P>
inline void zero_beyond(std::int64_t keys, std::int64_t Sp, P* p) {
  for (std::int64_t j = round_up(keys, kLanes); j < Sp; j += kLanes) store(p + j, broadcast(0.0f));
}

// e = exp(scale s - largest) of a row of scores over its S keys, dropped out where kDropout,
// written to p (which may be s), lanes beyond S zero; and the sum of all e.
struct RowMaximum {
  float largest;
  float sum;
};
template <bool kDropout, typename P>
inline RowMaximum exponentials(const float* s, std::int64_t S, float scale,
                               const std::uint64_t* masks, P* p) {
  Vec top = broadcast(-__builtin_inff());
  for_vectors(S, [&](std::int64_t j, std::int64_t n) {
    top = maximum(top, n == kLanes ? load(s + j) : select(first_lanes(n), load(s + j), top));
  });
  const float largest = horizontal_max(top) * scale;
  const Vec scales = broadcast(scale);
  const Vec minus_largest = broadcast(-largest);
  Vec sum = broadcast(0.0f);
  for_vectors(S, [&](std::int64_t j, std::int64_t n) {
    Vec e = exp_nonpositive(mul_add(load(s + j), scales, minus_largest));
    if (n != kLanes) e = keep_where(first_lanes(n), e);
    sum = sum + e;
    store(p + j, kDropout ? keep_where(mask_at(masks, j), e) : e);
  });
  return {largest, horizontal_sum(sum)};
}

template <typename T, bool kDropout>
void attention_forward_head(const AttentionForward<T>& a, const DropoutStream& stream,
                            std::int64_t example, std::int64_t head, std::byte* scratch) {
  using E = Element<T>;
  constexpr std::int64_t kPer = kPerElement<T>;
  const Head<T> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  if (S == 0) return;
  const Workspace<T> w(scratch, S, D, false);
  const std::int64_t stride = 3 * h.width;
  // Pairs are rounded to bf16 beside the scores, floats stay in their place.
  using P = typename Probability<kPer>::Type;
  P* const p = pick<P>(w.probabilities, w.scores);
  pack_transposed(h.qkv + h.width, stride, S, D, w.keys_t);
  pack_rows(h.qkv + 2 * h.width, stride, S, D, w.rows);
  for (std::int64_t i0 = 0; i0 < S; i0 += kQueryBlock) {
    const std::int64_t m = S - i0 < kQueryBlock ? S - i0 : kQueryBlock;
    pack_left(h.qkv + i0 * stride, stride, m, D, w.left);
    product<false>(m, w.Sp, D / kPer, Left<E>{w.left, D / kPer, 1}, w.keys_t,
                   Rows<float>{w.scores, w.Sp});
    float inverse[kQueryBlock];
    for (std::int64_t i = 0; i < m; ++i) {
      if (kDropout) {
        dropout_masks(stream, a.example[example], static_cast<std::int32_t>(i0 + i),
                      static_cast<std::int32_t>(head), S, w.masks);
      }
      const RowMaximum row =
          exponentials<kDropout>(w.scores + i * w.Sp, h.keys, h.scale, w.masks, p + i * w.Sp);
      zero_beyond(h.keys, w.Sp, p + i * w.Sp);
      inverse[i] = stream.scale / row.sum;
      a.log_sum_exp[(h.first + i0 + i) * a.heads + head] = row.largest + log_of(row.sum);
    }
    // The division by the row's sum waits for the D results of a row.
    product<false>(m, w.Dp, (S + kPer - 1) / kPer,
                   Left<E>{reinterpret_cast<const E*>(p), w.Sp / kPer, 1}, w.rows,
                   Rows<float>{w.out, w.Dp});
    for (std::int64_t i = 0; i < m; ++i) {
      T* context = a.context + (h.first + i0 + i) * h.width + head * D;
      const Vec factor = broadcast(inverse[i]);
      for_vectors(D, [&](std::int64_t d, std::int64_t n) {
        store_n(context + d, load(w.out + i * w.Dp + d) * factor, n);
      });
    }
  }
}
template <typename T>
void attention_forward(const AttentionForward<T>& a, const DropoutStream& stream,
                       std::int64_t example, std::int64_t head, std::byte* scratch) {
  stream.threshold == 0 ? attention_forward_head<T, false>(a, stream, example, head, scratch)
                        : attention_forward_head<T, true>(a, stream, example, head, scratch);
}

// A row of P from its scores, and its dP after dropout, both in place; returns sum_j P dP.
template <bool kDropout>
inline float probabilities_of(float* s, float* d, std::int64_t S, float scale, float lse,
                              float dropout_scale, const std::uint64_t* masks) {
  const Vec scales = broadcast(scale);
  const Vec minus_lse = broadcast(-lse);
  const Vec dropout_scales = broadcast(dropout_scale);
  Vec total = broadcast(0.0f);
  for_vectors(S, [&](std::int64_t j, std::int64_t n) {
    // Rounding may lift a score a hair above the log-sum-exp.
    const Vec below = minimum(broadcast(0.0f), mul_add(load(s + j), scales, minus_lse));
    Vec p = exp_nonpositive(below);
    if (n != kLanes) p = keep_where(first_lanes(n), p);
    Vec dp = load(d + j);
    if (kDropout) dp = keep_where(mask_at(masks, j), dp * dropout_scales);
    total = mul_add(p, dp, total);
    store(s + j, p);
    store(d + j, dp);
  });
  return horizontal_sum(total);
}

// Of a row's vector at j: P after dropout, and dS = P (dP - sum P dP) times the scores' scale.
struct Gradients {
  Vec p;
  Vec ds;
};
template <bool kDropout>
inline Gradients gradients_of(const float* s, const float* d, float p_dp, float scale,
                              float dropout_scale, const std::uint64_t* masks, std::int64_t j) {
  const Vec p = load(s + j);
  const Vec ds = p * broadcast(scale) * (load(d + j) - broadcast(p_dp));
  if (!kDropout) return {p, ds};
  return {keep_where(mask_at(masks, j), p * broadcast(dropout_scale)), ds};
}

template <typename T>
void store_rows(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t D,
                T* dst, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      store_n(dst + i * stride + d, load(src + i * src_stride + d), n);
    });
  }
}

template <typename T, bool kDropout>
void attention_backward_head(const AttentionBackward<T>& b, const DropoutStream& stream,
                             std::int64_t example, std::int64_t head, std::byte* scratch) {
  using E = Element<T>;
  constexpr std::int64_t kPer = kPerElement<T>;
  const AttentionForward<T>& a = b.forward;
  const Head<T> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  if (S == 0) return;
  const Workspace<T> w(scratch, S, D, true);
  const std::int64_t stride = 3 * h.width;
  T* d_qkv = b.d_qkv + h.first * stride + head * D;
  const T* d_context = b.d_context + h.first * h.width + head * D;
  pack_transposed(h.qkv + h.width, stride, S, D, w.keys_t);
  pack_rows(h.qkv + h.width, stride, S, D, w.rows);
  pack_transposed(h.qkv + 2 * h.width, stride, S, D, w.values_t);
  for (std::int64_t i = 0; i < w.Sp * w.Dp; i += kLanes) {
    store(w.d_keys + i, broadcast(0.0f));
    store(w.d_values + i, broadcast(0.0f));
  }
  const std::int64_t words = (S + kDropoutBlock - 1) / kDropoutBlock;
  for (std::int64_t i0 = 0; i0 < S; i0 += kQueryBlock) {
    const std::int64_t m = S - i0 < kQueryBlock ? S - i0 : kQueryBlock;
    pack_left(h.qkv + i0 * stride, stride, m, D, w.left);
    pack_left(d_context + i0 * h.width, h.width, m, D, w.left2);
    product<false>(m, w.Sp, D / kPer, Left<E>{w.left, D / kPer, 1}, w.keys_t,
                   Rows<float>{w.scores, w.Sp});
    product<false>(m, w.Sp, D / kPer, Left<E>{w.left2, D / kPer, 1}, w.values_t,
                   Rows<float>{w.d_scores, w.Sp});
    for (std::int64_t i = 0; i < m; i += kPer) {
      float p_dp[2] = {0.0f, 0.0f};
      for (std::int64_t r = 0; r < kPer && i + r < m; ++r) {
        if (kDropout) {
          dropout_masks(stream, a.example[example], static_cast<std::int32_t>(i0 + i + r),
                        static_cast<std::int32_t>(head), S, w.masks + r * words);
        }
        const float lse = a.log_sum_exp[(h.first + i0 + i + r) * a.heads + head];
        p_dp[r] =
            probabilities_of<kDropout>(w.scores + (i + r) * w.Sp, w.d_scores + (i + r) * w.Sp,
                                       h.keys, h.scale, lse, stream.scale, w.masks + r * words);
        zero_beyond(h.keys, w.Sp, w.scores + (i + r) * w.Sp);
      }
      float* s = w.scores + i * w.Sp;
      float* d = w.d_scores + i * w.Sp;
      for (std::int64_t j = 0; j < w.Sp; j += kLanes) {
        const Gradients one =
            gradients_of<kDropout>(s, d, p_dp[0], h.scale, stream.scale, w.masks, j);
        if constexpr (kPer == 2) {
          Gradients two = {broadcast(0.0f), broadcast(0.0f)};
          if (i + 1 < m) {
            two = gradients_of<kDropout>(s + w.Sp, d + w.Sp, p_dp[1], h.scale, stream.scale,
                                         w.masks + words, j);
          }
          store_pairs(reinterpret_cast<E*>(s) + j, one.p, two.p);
          store_pairs(reinterpret_cast<E*>(d) + j, one.ds, two.ds);
          store(w.probabilities + i * w.Sp + j, one.ds);
          store(w.probabilities + (i + 1) * w.Sp + j, two.ds);
        } else {
          store(s + j, one.p);
          store(d + j, one.ds);
        }
      }
    }
    // Over the queries of the block: elements of row i stand kPer rows of scores apart.
    const std::int64_t queries = (m + kPer - 1) / kPer;
    pack_rows(d_context + i0 * h.width, h.width, m, D, w.block_rows);
    product<true>(S, w.Dp, queries, Left<E>{reinterpret_cast<const E*>(w.scores), 1, kPer * w.Sp},
                  w.block_rows, Rows<float>{w.d_values, w.Dp});
    pack_rows(h.qkv + i0 * stride, stride, m, D, w.block_rows);
    product<true>(S, w.Dp, queries, Left<E>{reinterpret_cast<const E*>(w.d_scores), 1, kPer * w.Sp},
                  w.block_rows, Rows<float>{w.d_keys, w.Dp});
    const E* ds = kPer == 2 ? reinterpret_cast<const E*>(w.probabilities)
                            : reinterpret_cast<const E*>(w.d_scores);
    product<false>(m, w.Dp, (S + kPer - 1) / kPer, Left<E>{ds, w.Sp / kPer, 1}, w.rows,
                   Rows<float>{w.out, w.Dp});
    store_rows(w.out, w.Dp, m, D, d_qkv + i0 * stride, stride);
  }
  store_rows(w.d_keys, w.Dp, S, D, d_qkv + h.width, stride);
  store_rows(w.d_values, w.Dp, S, D, d_qkv + 2 * h.width, stride);
}

template <typename T>
void attention_backward(const AttentionBackward<T>& b, const DropoutStream& stream,
                        std::int64_t example, std::int64_t head, std::byte* scratch) {
  stream.threshold == 0 ? attention_backward_head<T, false>(b, stream, example, head, scratch)
                        : attention_backward_head<T, true>(b, stream, example, head, scratch);
}

}  // namespace
}  // namespace tilewright::kernels
