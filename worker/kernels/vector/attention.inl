// Attention of one example and head. A block of query rows is multiplied with all keys, so scratch
// holds complete rows of scores and no S x S matrix. Formulas: ref/attention_ref.cpp.
namespace tilewright::kernels {
namespace {

// Query rows per block, a multiple of 2. dK and dV stay in scratch and are read and written once
// per block.
inline constexpr std::int64_t kQueryBlock = 48;

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

template <typename Activation>
struct Workspace {
  using E = Element<Activation>;
  static constexpr std::int64_t kPack = kPerElement<Activation>;
  Workspace(std::byte* base, std::int64_t S, std::int64_t D, bool backward)
      : Sp(round_up(S, kLanes)),
        Dp(round_up(D, kLanes)),
        scratch(base),
        masks(scratch.take<std::uint64_t>(2 * (round_up(S, kDropoutBlock) / kDropoutBlock))),
        left(scratch.take<E>(kQueryBlock * D / kPack)),
        keys_t(take_panels(D / kPack, Sp)),
        rows(take_panels((S + kPack - 1) / kPack, Dp)),
        scores(scratch.take<float>(kQueryBlock * Sp)),
        probabilities(scratch.take<bf16>(kPack == 2 ? kQueryBlock * Sp : 0)),
        out(scratch.take<float>(kQueryBlock * Dp)),
        d_out(scratch.take<E>(backward ? kQueryBlock * D / kPack : 0)),
        values_t(take_panels(D / kPack, backward ? Sp : 0)),
        d_scores(scratch.take<float>(backward ? kQueryBlock * Sp : 0)),
        block_rows(take_panels(kQueryBlock / kPack, backward ? Dp : 0)),
        d_keys(scratch.take<float>(backward ? Sp * Dp : 0)),
        d_values(scratch.take<float>(backward ? Sp * Dp : 0)) {}
  Panels<E> take_panels(std::int64_t k, std::int64_t n) {
    return {scratch.take<E>(Panels<E>::size(k, n)), k, n};
  }
  std::int64_t Sp, Dp;  // S and D rounded up to whole vectors
  Scratch scratch;
  std::uint64_t* masks;  // of two rows
  E* left;               // Q of the block, as A
  Panels<E> keys_t;      // K^T, as B
  Panels<E> rows;        // forward: V, backward: K, as B over keys
  float* scores;         // [kQueryBlock, Sp]
  bf16* probabilities;   // [kQueryBlock, Sp], used with pairs: P in forward, dS in backward
  float* out;            // O or dQ of the block
  // Backward only:
  E* d_out;              // dO of the block, as A
  Panels<E> values_t;    // V^T, as B
  float* d_scores;       // [kQueryBlock, Sp]
  Panels<E> block_rows;  // dO, then Q of the block, as B over queries
  float* d_keys;         // [S, Dp]
  float* d_values;       // [S, Dp]
};

template <typename Activation>
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return Workspace<Activation>(nullptr, max_seqlen, head_size, true).scratch.used();
}

// One head of one example in the packed rows of qkv.
template <typename Activation>
struct Head {
  Head(const AttentionForward<Activation>& a, std::int64_t example, std::int64_t head)
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
  std::int64_t keys;      // number of attended tokens, the first of S
  const Activation* qkv;  // Q of the first token; K at + width, V at + 2 width
  float scale;
};

// The type in which forward stores probabilities.
template <std::int64_t kPack>
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

// Zeroes the whole vectors of a row of probabilities [0, Sp) that lie beyond the keys.
template <typename P>
inline void zero_padding(std::int64_t keys, std::int64_t Sp, P* p) {
  for (std::int64_t j = round_up(keys, kLanes); j < Sp; j += kLanes) store(p + j, broadcast(0.0f));
}

// Writes e = exp(scale s - largest) of a row of scores over its S keys to p, which may be s, with
// dropout if kDropout and with lanes beyond S zero. `sum` is the sum of all e before dropout.
struct SoftmaxStats {
  float largest;
  float sum;
};
template <bool kDropout, typename P>
inline SoftmaxStats softmax_numerators(const float* s, std::int64_t S, float scale,
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
    if (n != kLanes) e = select_or_zero(first_lanes(n), e);
    sum = sum + e;
    store(p + j, kDropout ? select_or_zero(mask_at(masks, j), e) : e);
  });
  return {largest, horizontal_sum(sum)};
}

template <typename Activation, bool kDropout>
void attention_forward_head(const AttentionForward<Activation>& a, const DropoutStream& stream,
                            std::int64_t example, std::int64_t head, std::byte* scratch) {
  using E = Element<Activation>;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  if (S == 0) return;
  const Workspace<Activation> w(scratch, S, D, false);
  const std::int64_t stride = 3 * h.width;
  // bf16 probabilities have a separate buffer; float probabilities replace the scores.
  using P = typename Probability<kPack>::Type;
  P* const p = pick<P>(w.probabilities, w.scores);
  pack_transposed(h.qkv + h.width, stride, S, D, w.keys_t);
  pack_rows(h.qkv + 2 * h.width, stride, S, D, w.rows);
  for (std::int64_t i0 = 0; i0 < S; i0 += kQueryBlock) {
    const std::int64_t m = S - i0 < kQueryBlock ? S - i0 : kQueryBlock;
    pack_left(h.qkv + i0 * stride, stride, m, D, w.left);
    product<false>(m, w.Sp, D / kPack, Left<E>{w.left, D / kPack, 1}, w.keys_t,
                   Rows<float>{w.scores, w.Sp});
    float inverse[kQueryBlock];
    for (std::int64_t i = 0; i < m; ++i) {
      if (kDropout) {
        dropout_masks(stream, a.example[example], static_cast<std::int32_t>(i0 + i),
                      static_cast<std::int32_t>(head), S, w.masks);
      }
      const SoftmaxStats row =
          softmax_numerators<kDropout>(w.scores + i * w.Sp, h.keys, h.scale, w.masks, p + i * w.Sp);
      zero_padding(h.keys, w.Sp, p + i * w.Sp);
      inverse[i] = stream.scale / row.sum;
      a.log_sum_exp[(h.first + i0 + i) * a.heads + head] = row.largest + log_of(row.sum);
    }
    // Divides the D outputs by the row's sum, which is cheaper than dividing S probabilities.
    product<false>(m, w.Dp, (S + kPack - 1) / kPack,
                   Left<E>{reinterpret_cast<const E*>(p), w.Sp / kPack, 1}, w.rows,
                   Rows<float>{w.out, w.Dp});
    for (std::int64_t i = 0; i < m; ++i) {
      Activation* context = a.context + (h.first + i0 + i) * h.width + head * D;
      const Vec factor = broadcast(inverse[i]);
      for_vectors(D, [&](std::int64_t d, std::int64_t n) {
        store_n(context + d, load(w.out + i * w.Dp + d) * factor, n);
      });
    }
  }
}
template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, std::int64_t head, std::byte* scratch) {
  stream.threshold == 0
      ? attention_forward_head<Activation, false>(a, stream, example, head, scratch)
      : attention_forward_head<Activation, true>(a, stream, example, head, scratch);
}

// Replaces a row of scores by P, and dP by its value after dropout. Returns sum_j P dP.
template <bool kDropout>
inline float recompute_probabilities(float* s, float* d, std::int64_t S, float scale, float lse,
                                     float dropout_scale, const std::uint64_t* masks) {
  const Vec scales = broadcast(scale);
  const Vec minus_lse = broadcast(-lse);
  const Vec dropout_scales = broadcast(dropout_scale);
  Vec total = broadcast(0.0f);
  for_vectors(S, [&](std::int64_t j, std::int64_t n) {
    // Rounding can put a score slightly above the log-sum-exp.
    const Vec below = minimum(broadcast(0.0f), mul_add(load(s + j), scales, minus_lse));
    Vec p = exp_nonpositive(below);
    if (n != kLanes) p = select_or_zero(first_lanes(n), p);
    Vec dp = load(d + j);
    if (kDropout) dp = select_or_zero(mask_at(masks, j), dp * dropout_scales);
    total = mul_add(p, dp, total);
    store(s + j, p);
    store(d + j, dp);
  });
  return horizontal_sum(total);
}

// For the vector at j of a row: P after dropout, and dS = P (dP - sum P dP) times the score scale.
struct Gradients {
  Vec p;
  Vec ds;
};
template <bool kDropout>
inline Gradients score_gradients(const float* s, const float* d, float p_dp, float scale,
                                 float dropout_scale, const std::uint64_t* masks, std::int64_t j) {
  const Vec p = load(s + j);
  const Vec ds = p * broadcast(scale) * (load(d + j) - broadcast(p_dp));
  if (!kDropout) return {p, ds};
  return {select_or_zero(mask_at(masks, j), p * broadcast(dropout_scale)), ds};
}

template <typename Activation>
void store_rows(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t D,
                Activation* dst, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      store_n(dst + i * stride + d, load(src + i * src_stride + d), n);
    });
  }
}

template <typename Activation, bool kDropout>
void attention_backward_head(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                             std::int64_t example, std::int64_t head, std::byte* scratch) {
  using E = Element<Activation>;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  const AttentionForward<Activation>& a = b.forward;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  if (S == 0) return;
  const Workspace<Activation> w(scratch, S, D, true);
  const std::int64_t stride = 3 * h.width;
  Activation* d_qkv = b.d_qkv + h.first * stride + head * D;
  const Activation* d_context = b.d_context + h.first * h.width + head * D;
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
    pack_left(d_context + i0 * h.width, h.width, m, D, w.d_out);
    product<false>(m, w.Sp, D / kPack, Left<E>{w.left, D / kPack, 1}, w.keys_t,
                   Rows<float>{w.scores, w.Sp});
    product<false>(m, w.Sp, D / kPack, Left<E>{w.d_out, D / kPack, 1}, w.values_t,
                   Rows<float>{w.d_scores, w.Sp});
    for (std::int64_t i = 0; i < m; i += kPack) {
      float p_dp[2] = {0.0f, 0.0f};
      for (std::int64_t r = 0; r < kPack && i + r < m; ++r) {
        if (kDropout) {
          dropout_masks(stream, a.example[example], static_cast<std::int32_t>(i0 + i + r),
                        static_cast<std::int32_t>(head), S, w.masks + r * words);
        }
        const float lse = a.log_sum_exp[(h.first + i0 + i + r) * a.heads + head];
        p_dp[r] = recompute_probabilities<kDropout>(w.scores + (i + r) * w.Sp,
                                                    w.d_scores + (i + r) * w.Sp, h.keys, h.scale,
                                                    lse, stream.scale, w.masks + r * words);
        zero_padding(h.keys, w.Sp, w.scores + (i + r) * w.Sp);
      }
      float* s = w.scores + i * w.Sp;
      float* d = w.d_scores + i * w.Sp;
      for (std::int64_t j = 0; j < w.Sp; j += kLanes) {
        const Gradients one =
            score_gradients<kDropout>(s, d, p_dp[0], h.scale, stream.scale, w.masks, j);
        if constexpr (kPack == 2) {
          Gradients two = {broadcast(0.0f), broadcast(0.0f)};
          if (i + 1 < m) {
            two = score_gradients<kDropout>(s + w.Sp, d + w.Sp, p_dp[1], h.scale, stream.scale,
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
    // Products over the queries of the block: successive elements along k are kPack rows apart.
    const std::int64_t queries = (m + kPack - 1) / kPack;
    pack_rows(d_context + i0 * h.width, h.width, m, D, w.block_rows);
    product<true>(S, w.Dp, queries, Left<E>{reinterpret_cast<const E*>(w.scores), 1, kPack * w.Sp},
                  w.block_rows, Rows<float>{w.d_values, w.Dp});
    pack_rows(h.qkv + i0 * stride, stride, m, D, w.block_rows);
    product<true>(S, w.Dp, queries,
                  Left<E>{reinterpret_cast<const E*>(w.d_scores), 1, kPack * w.Sp}, w.block_rows,
                  Rows<float>{w.d_keys, w.Dp});
    const E* ds = kPack == 2 ? reinterpret_cast<const E*>(w.probabilities)
                             : reinterpret_cast<const E*>(w.d_scores);
    product<false>(m, w.Dp, (S + kPack - 1) / kPack, Left<E>{ds, w.Sp / kPack, 1}, w.rows,
                   Rows<float>{w.out, w.Dp});
    store_rows(w.out, w.Dp, m, D, d_qkv + i0 * stride, stride);
  }
  store_rows(w.d_keys, w.Dp, S, D, d_qkv + h.width, stride);
  store_rows(w.d_values, w.Dp, S, D, d_qkv + 2 * h.width, stride);
}

template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                        std::int64_t example, std::int64_t head, std::byte* scratch) {
  stream.threshold == 0
      ? attention_backward_head<Activation, false>(b, stream, example, head, scratch)
      : attention_backward_head<Activation, true>(b, stream, example, head, scratch);
}

}  // namespace
}  // namespace tilewright::kernels
