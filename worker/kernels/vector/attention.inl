// Attention of the heads of one example. A block of queries is multiplied with all keys, so scratch
// holds complete columns of scores and no S x S matrix. Scores are transposed, [keys, queries]: the
// statistics of a query are one lane, without sums across lanes. Formulas: ref/attention_ref.cpp.
namespace tilewright::kernels {
namespace {

// Queries per block, a multiple of kDropoutBlock. dK and dV of more than one block stay in scratch
// and are read and written once per block.
inline constexpr std::int64_t kForwardQueries = 64;
inline constexpr std::int64_t kBackwardQueries = 128;
static_assert(kForwardQueries % kDropoutBlock == 0 && kBackwardQueries % kDropoutBlock == 0);
// Keys whose scores are computed and used while they are in the L1 cache, a multiple of the rows of
// a tile and of 2.
inline constexpr std::int64_t kStrip = 24;
inline constexpr std::int64_t kLead = kStrip / 2;

// The type of P after dropout, as A of dV.
template <std::int64_t kPack>
struct Probability {
  using Type = float;
};
template <>
struct Probability<2> {
  using Type = bf16;
};

template <typename Activation>
struct Workspace {
  using E = Element<Activation>;
  static constexpr std::int64_t kPack = kPerElement<Activation>;
  using P = typename Probability<kPack>::Type;
  Workspace(std::byte* base, std::int64_t S, std::int64_t D, bool backward)
      : block(backward ? kBackwardQueries : kForwardQueries),
        Q(round_up(S < block ? S : block, kLanes)),
        Dp(round_up(D, kLanes)),
        rows(round_up(S, 2)),
        scratch(base),
        keys(scratch.take<E>(in_place(S) ? 0 : S * D / kPack)),
        queries_t(take_panels(D / kPack, Q)),
        key_rows(take_panels(rows / kPack, backward ? Dp : 0)),
        value_rows(take_panels(rows / kPack, backward ? 0 : Dp)),
        scores(scratch.take<float>((rows + kLead) * Q) + kLead * Q),
        values(scratch.take<E>(!backward || in_place(S) ? 0 : S * D / kPack)),
        d_out_t(take_panels(D / kPack, backward ? Q : 0)),
        d_scores(scratch.take<float>(backward ? (rows + kLead) * Q : 0) + kLead * Q),
        kept(scratch.take<P>(backward ? rows * Q : 0)),
        query_rows(take_panels((Q + 1) / kPack, backward ? Dp : 0)),
        d_out_rows(take_panels((Q + 1) / kPack, backward ? Dp : 0)),
        d_keys(scratch.take<float>(backward && S > block ? S * Dp : 0)),
        d_values(scratch.take<float>(backward && S > block ? S * Dp : 0)) {}
  // Whether K and V are read as A without packing. With several blocks of queries they are read
  // several times, so copies without gaps between the rows are faster.
  bool in_place(std::int64_t S) const { return kReadsInPlace<Activation> && S <= block; }
  // Where operands replace fp32 values: kLead rows before them, so that the operand's rows, which
  // have half the size, never reach values of the strip that is being read. Floats stay in place.
  E* over_keys(float* fp32) const {
    return reinterpret_cast<E*>(kPack == 2 ? fp32 - kLead * Q : fp32);
  }
  Panels<E> take_panels(std::int64_t k, std::int64_t n) {
    return {scratch.take<E>(Panels<E>::size(k, n)), k, n};
  }
  std::int64_t block;  // queries per block
  std::int64_t Q, Dp;  // queries of a block and D rounded up to whole vectors
  std::int64_t rows;   // S rounded up to pairs
  Scratch scratch;
  E* keys;               // K as A, if not in place
  Panels<E> queries_t;   // Q^T of the block, as B
  Panels<E> key_rows;    // backward: K as B over keys
  Panels<E> value_rows;  // forward: V as B over keys
  float* scores;         // [rows, Q], then probabilities (forward: as A), then dS as A over queries
  // Backward only:
  E* values;             // V as A, if not in place
  Panels<E> d_out_t;     // dO^T of the block, as B
  float* d_scores;       // [rows, Q], then dS as A over keys
  P* kept;               // [rows, Q], P after dropout, as A over queries
  Panels<E> query_rows;  // Q of the block, as B over queries
  Panels<E> d_out_rows;  // dO of the block, as B over queries
  float* d_keys;         // [S, Dp]
  float* d_values;       // [S, Dp]
};

template <typename Activation>
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  std::size_t most = 0;
  // A batch's longest example needs the most, except that one block of queries needs no sums.
  for (const bool backward : {false, true}) {
    const std::size_t used =
        Workspace<Activation>(nullptr, max_seqlen, head_size, backward).scratch.used();
    if (used > most) most = used;
  }
  return most;
}

// Rows of activations as A, packed to `copy` unless it is null.
template <typename Activation>
Left<Element<Activation>> as_left(const Activation* src, std::int64_t stride, std::int64_t rows,
                                  std::int64_t D, Element<Activation>* copy, bool in_place) {
  using E = Element<Activation>;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  if constexpr (kReadsInPlace<Activation>) {
    if (in_place) return {reinterpret_cast<const E*>(src), stride / kPack, 1};
  }
  pack_left(src, stride, rows, D, copy);
  return {copy, D / kPack, 1};
}
template <typename E>
Left<E> from_row(Left<E> a, std::int64_t row) {
  return {a.p + row * a.row, a.row, a.step};
}

// The mask bits of kLanes queries from `column` of a block's mask.
inline std::uint32_t mask_bits(const std::uint64_t* mask, std::int64_t column) {
  return static_cast<std::uint32_t>(*mask >> column) & ((1u << kLanes) - 1u);
}

// top[i] = the largest of top[i] and rows of column i.
template <int kVectors>
void raise_maximum(const float* s, std::int64_t stride, std::int64_t rows, float* top) {
  Vec largest[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) largest[v] = load(top + v * kLanes);
  for (std::int64_t j = 0; j < rows; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = maximum(largest[v], load(s + j * stride + v * kLanes));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) store(top + v * kLanes, largest[v]);
}

// Replaces columns of scores by e = 2^(scale (s - largest)), zero where dropped, as A over keys in
// `p`, which may be s. sums: of all e before dropout; two partial sums per query, of even and odd
// keys.
template <typename E, int kVectors, bool kDropout>
void softmax_numerators(const float* s, std::int64_t stride, std::int64_t rows, float scale,
                        const float* largest, const std::uint64_t* masks, std::int64_t column,
                        float* sums, std::int64_t sums_stride, E* p) {
  constexpr bool kPairs = !__is_same(E, float);
  const Vec scales = broadcast(scale);
  Vec top[kVectors];
  Vec sum[2][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    top[v] = load(largest + v * kLanes);
    sum[0][v] = load(sums + v * kLanes);
    sum[1][v] = load(sums + sums_stride + v * kLanes);
  }
  const auto numerator = [&](std::int64_t j, int v) {
    return exp2((load(s + j * stride + v * kLanes) - top[v]) * scales);
  };
  std::int64_t j = 0;
  for (; j + 2 <= rows; j += 2) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec first = numerator(j, v);
      const Vec second = numerator(j + 1, v);
      sum[0][v] = sum[0][v] + first;
      sum[1][v] = sum[1][v] + second;
      const std::uint32_t bits = kDropout ? mask_bits(masks + j, column + v * kLanes) : ~0u;
      const std::uint32_t bits2 = kDropout ? mask_bits(masks + j + 1, column + v * kLanes) : ~0u;
      if constexpr (kPairs) {
        store_pairs(p + j / 2 * stride + v * kLanes, first, second,
                    kDropout ? bits | bits2 << 16 : ~0u);
      } else {
        store(p + j * stride + v * kLanes,
              kDropout ? select_or_zero(mask_from_bits(bits), first) : first);
        store(p + (j + 1) * stride + v * kLanes,
              kDropout ? select_or_zero(mask_from_bits(bits2), second) : second);
      }
    }
  }
  if (j < rows) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec last = numerator(j, v);
      sum[0][v] = sum[0][v] + last;
      const std::uint32_t bits = kDropout ? mask_bits(masks + j, column + v * kLanes) : ~0u;
      const Vec kept = kDropout ? select_or_zero(mask_from_bits(bits), last) : last;
      if constexpr (kPairs) {
        store_pairs(p + j / 2 * stride + v * kLanes, kept, broadcast(0.0f));
      } else {
        store(p + j * stride + v * kLanes, kept);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(sums + v * kLanes, sum[0][v]);
    store(sums + sums_stride + v * kLanes, sum[1][v]);
  }
}

template <typename Activation, bool kDropout>
void attention_forward_head(const AttentionForward<Activation>& a, const DropoutStream& stream,
                            std::int64_t example, std::int64_t head, bool another,
                            std::byte* scratch) {
  using E = Element<Activation>;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  const Workspace<Activation> w(scratch, S, D, false);
  Activation* const context = a.context + h.context_offset;
  const Left<E> keys = as_left(h.k, h.stride, h.keys, D, w.keys, w.in_place(S));
  pack_rows(h.v, h.stride, h.keys, D, w.value_rows);
  const std::int64_t parts = ceil_div(h.keys, kStrip);
  RowsAhead<const Activation, false> next_head(S, D, parts * ceil_div(S, kForwardQueries));
  if (another) {
    for (const Activation* p : {h.q, h.k, h.v}) next_head.add(p + D, h.stride);
  }
  for (std::int64_t i0 = 0; i0 < S; i0 += kForwardQueries) {
    const std::int64_t m = S - i0 < kForwardQueries ? S - i0 : kForwardQueries;
    const std::int64_t n = round_up(m, kLanes);
    RowsAhead<Activation, true> results(m, D, parts);
    results.add(context + i0 * h.width, h.width);
    const auto prefetch_part = [&] {
      next_head.prefetch_part();
      results.prefetch_part();
    };
    pack_transposed(h.q + i0 * h.stride, h.stride, m, D, w.queries_t);
    alignas(64) float largest[kForwardQueries];
    alignas(64) float sums[2][kForwardQueries] = {};
    alignas(64) float factors[kForwardQueries];
    for (float& x : largest) x = -__builtin_inff();
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = h.keys - j < kStrip ? h.keys - j : kStrip;
      float* s = w.scores + j * w.Q;
      prefetch_part();
      product(rows, n, D / kPack, from_row(keys, j), w.queries_t, Sums{s, w.Q, nullptr, 0});
      for_panels(n, [&](std::int64_t c, auto count) {
        raise_maximum<count.value>(s + c, w.Q, rows, largest + c);
      });
    }
    const float scale = h.scale * kLog2E;
    E* const p = w.over_keys(w.scores);
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = h.keys - j < kStrip ? h.keys - j : kStrip;
      std::uint64_t masks[kStrip];
      if (kDropout) {
        dropout_block_masks(stream, a.example[example], j, rows, head, i0 / kDropoutBlock, masks);
      }
      for_panels(n, [&](std::int64_t c, auto count) {
        softmax_numerators<E, count.value, kDropout>(w.scores + j * w.Q + c, w.Q, rows, scale,
                                                     largest + c, masks, c, sums[0] + c,
                                                     kForwardQueries, p + j / kPack * w.Q + c);
      });
    }
    const Vec dropout_scale = broadcast(stream.scale);
    for (std::int64_t c = 0; c < n; c += kLanes) {
      const Vec sum = load(sums[0] + c) + load(sums[1] + c);
      alignas(64) float total[kLanes];
      alignas(64) float lse[kLanes];
      store(total, sum);
      store(factors + c, dropout_scale / sum);
      for (int l = 0; l < kLanes; ++l) lse[l] = largest[c + l] * h.scale + log_of(total[l]);
      store_n(h.log_sum_exp + i0 + c, load(lse), m - c < kLanes ? m - c : kLanes);
    }
    // Divides the D outputs by the sum, which is cheaper than dividing S probabilities.
    product(m, w.Dp, (h.keys + kPack - 1) / kPack, Left<E>{p, 1, w.Q}, w.value_rows,
            Result<Activation>{context + i0 * h.width, h.width, D, factors, 1, nullptr, 0});
  }
}
template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, Range heads, std::byte* scratch) {
  if (a.cu_seqlens[example] == a.cu_seqlens[example + 1]) return;
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    const bool another = head + 1 < heads.end;
    stream.threshold == 0
        ? attention_forward_head<Activation, false>(a, stream, example, head, another, scratch)
        : attention_forward_head<Activation, true>(a, stream, example, head, another, scratch);
  }
}

// Replaces columns of scores by P, and of dP by its value after dropout without the scale, and adds
// sum_j P dP of each query to `sums`. `kept` is P after dropout, without the scale.
// Pairs: `shift` is the log-sum-exp. Its rounding error scales all P of a query, so that rows of dS
// have a sum other than zero, which gradients in fp32 show. Floats: `shift` is the largest score, P
// is forward's numerator, and its sum is added to `totals`.
template <typename P, int kVectors, bool kDropout>
void recompute_probabilities(float* s, float* d, std::int64_t stride, std::int64_t rows,
                             float scale, const float* shift, const std::uint64_t* masks,
                             std::int64_t column, float* sums, [[maybe_unused]] float* totals,
                             P* kept) {
  constexpr bool kPairs = !__is_same(P, float);
  const Vec scales = broadcast(kPairs ? scale : scale * kLog2E);
  const Vec log2_e = broadcast(kLog2E);
  Vec top[kVectors];
  Vec sum[kVectors];
  Vec total[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    top[v] = load(shift + v * kLanes);
    sum[v] = kPairs ? load(sums + v * kLanes) : broadcast(0.0f);
    total[v] = broadcast(0.0f);
  }
  const auto probability = [&](std::int64_t j, int v, Mask mask) {
    const std::int64_t at = j * stride + v * kLanes;
    Vec p;
    if constexpr (kPairs) {
      // A query with one key has exactly 2^0: forward rounds the scaled score in the same way.
      p = exp2((load(s + at) * scales - top[v]) * log2_e);
    } else {
      p = exp2((load(s + at) - top[v]) * scales);
      total[v] = total[v] + p;
    }
    store(s + at, p);
    Vec dp = load(d + at);
    if (kDropout) {
      dp = select_or_zero(mask, dp);
      store(d + at, dp);
    }
    sum[v] = mul_add(p, dp, sum[v]);
    return p;
  };
  for (std::int64_t j = 0; j < rows; j += kPairs ? 2 : 1) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::uint32_t bits = kDropout ? mask_bits(masks + j, column + v * kLanes) : ~0u;
      const Mask mask = mask_from_bits(bits);
      const Vec first = probability(j, v, mask);
      P* const to = kept + j * stride + v * kLanes;
      if constexpr (kPairs) {
        if (j + 1 == rows) {
          store(to, kDropout ? select_or_zero(mask, first) : first);
          continue;
        }
        const std::uint32_t bits2 = kDropout ? mask_bits(masks + j + 1, column + v * kLanes) : ~0u;
        const Vec second = probability(j + 1, v, mask_from_bits(bits2));
        store_rows(to, to + stride, first, second, kDropout ? bits | bits2 << 16 : ~0u);
      } else {
        store(to, kDropout ? select_or_zero(mask, first) : first);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kPairs) {
      store(sums + v * kLanes, sum[v]);
    } else {
      // A sum over the rows of each call first: fewer roundings of large sums.
      store(sums + v * kLanes, load(sums + v * kLanes) + sum[v]);
      store(totals + v * kLanes, load(totals + v * kLanes) + total[v]);
    }
  }
}

// Multiplies row i of B [rows, columns] by factors[i].
inline void scale_rows(Panels<float> b, std::int64_t rows, std::int64_t columns,
                       const float* factors) {
  for (std::int64_t j = 0; j < columns; j += kLanes) {
    for (std::int64_t i = 0; i < rows; ++i) {
      store(b.at(i, j), load(b.at(i, j)) * broadcast(factors[i]));
    }
  }
}

// Computes dS = P (dP - sum) of columns of successive rows. Floats replace dP. Pairs go to
// `over_queries` as rows of bf16 and to `over_keys` as pairs of rows.
template <typename P, typename E, int kVectors>
void score_gradients(const float* s, float* d, std::int64_t stride, std::int64_t rows,
                     const float* sums, [[maybe_unused]] P* over_queries,
                     [[maybe_unused]] E* over_keys) {
  constexpr bool kPairs = !__is_same(P, float);
  Vec sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sum[v] = load(sums + v * kLanes);
  const auto gradient = [&](std::int64_t j, int v) {
    const std::int64_t at = j * stride + v * kLanes;
    return load(s + at) * (load(d + at) - sum[v]);
  };
  for (std::int64_t j = 0; j < rows; j += kPairs ? 2 : 1) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec first = gradient(j, v);
      if constexpr (kPairs) {
        P* const to = over_queries + j * stride + v * kLanes;
        Vec second = broadcast(0.0f);
        if (j + 1 < rows) {
          second = gradient(j + 1, v);
          store_rows(to, to + stride, first, second);
        } else {
          store(to, first);
        }
        store_pairs(over_keys + j / 2 * stride + v * kLanes, first, second);
      } else {
        store(d + j * stride + v * kLanes, first);
      }
    }
  }
}

// Adds the product over one block of queries to `sums` [rows, Dp] in scratch; the last block's sum
// goes to `to`, with the factor.
template <typename Activation>
void add_product(std::int64_t rows, std::int64_t Dp, std::int64_t k, Left<Element<Activation>> a,
                 Panels<Element<Activation>> b, float* sums, bool first, bool last, float factor,
                 Activation* to, std::int64_t stride, std::int64_t D) {
  const float* before = first ? nullptr : sums;
  if (last) {
    product(rows, Dp, k, a, b, Result<Activation>{to, stride, D, &factor, 0, before, Dp});
  } else {
    product(rows, Dp, k, a, b, Sums{sums, Dp, before, Dp});
  }
}

template <typename Activation, bool kDropout>
void attention_backward_head(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                             std::int64_t example, std::int64_t head, bool another,
                             std::byte* scratch) {
  using E = Element<Activation>;
  using P = typename Workspace<Activation>::P;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  constexpr bool kPairs = !__is_same(P, float);
  const AttentionForward<Activation>& a = b.forward;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  const Workspace<Activation> w(scratch, S, D, true);
  const Activation* const d_context = b.d_context + h.context_offset;
  Activation* const dq = b.d_qkv + h.offset;
  Activation* const dk = dq + h.width;
  Activation* const dv = dk + h.width;
  const Left<E> keys = as_left(h.k, h.stride, h.keys, D, w.keys, w.in_place(S));
  const Left<E> values = as_left(h.v, h.stride, h.keys, D, w.values, w.in_place(S));
  pack_rows(h.k, h.stride, h.keys, D, w.key_rows);
  const std::int64_t parts = ceil_div(h.keys, kStrip);
  RowsAhead<const Activation, false> next_head(S, D, parts * ceil_div(S, kBackwardQueries));
  if (another) {
    for (const Activation* p : {h.q, h.k, h.v}) next_head.add(p + D, h.stride);
    next_head.add(d_context + D, h.width);
  }
  // dP and dS are computed without the factors of dropout and of the scores.
  const float ds_factor = h.scale * stream.scale;
  const std::int64_t key_elements = (h.keys + kPack - 1) / kPack;
  E* const over_keys = w.over_keys(w.d_scores);
  P* const over_queries = reinterpret_cast<P*>(w.over_keys(w.scores));
  for (std::int64_t i0 = 0; i0 < S; i0 += kBackwardQueries) {
    const std::int64_t m = S - i0 < kBackwardQueries ? S - i0 : kBackwardQueries;
    const std::int64_t n = round_up(m, kLanes);
    const bool first = i0 == 0;
    const bool last = i0 + m == S;
    const Activation* const q = h.q + i0 * h.stride;
    const Activation* const d_out = d_context + i0 * h.width;
    pack_transposed(q, h.stride, m, D, w.queries_t);
    pack_transposed(d_out, h.width, m, D, w.d_out_t);
    pack_rows(q, h.stride, m, D, w.query_rows);
    pack_rows(d_out, h.width, m, D, w.d_out_rows);
    RowsAhead<Activation, true> d_queries(m, D, parts);
    d_queries.add(dq + i0 * h.stride, h.stride);
    RowsAhead<Activation, true> d_key_values(last ? S : 0, D, parts);
    for (Activation* p : {dk, dv}) d_key_values.add(p, h.stride);
    const auto prefetch_part = [&] {
      next_head.prefetch_part();
      d_queries.prefetch_part();
      d_key_values.prefetch_part();
    };
    alignas(64) float shift[kBackwardQueries];
    alignas(64) float sums[kBackwardQueries] = {};
    alignas(64) float totals[kBackwardQueries] = {};
    alignas(64) float factors[kBackwardQueries];  // of dQ
    for (std::int64_t c = 0; c < n; c += kLanes) {
      store(shift + c, kPairs ? load_n(h.log_sum_exp + i0 + c, m - c < kLanes ? m - c : kLanes)
                              : broadcast(-__builtin_inff()));
      store(factors + c, broadcast(ds_factor));
    }
    const auto compute_scores = [&](std::int64_t j, std::int64_t rows) {
      product(rows, n, D / kPack, from_row(keys, j), w.queries_t,
              Sums{w.scores + j * w.Q, w.Q, nullptr, 0});
    };
    for (std::int64_t j = 0; j < h.keys && !kPairs; j += kStrip) {
      const std::int64_t rows = h.keys - j < kStrip ? h.keys - j : kStrip;
      compute_scores(j, rows);
      for_panels(n, [&](std::int64_t c, auto count) {
        raise_maximum<count.value>(w.scores + j * w.Q + c, w.Q, rows, shift + c);
      });
    }
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = h.keys - j < kStrip ? h.keys - j : kStrip;
      float* const s = w.scores + j * w.Q;
      float* const d = w.d_scores + j * w.Q;
      prefetch_part();
      if (kPairs) compute_scores(j, rows);
      product(rows, n, D / kPack, from_row(values, j), w.d_out_t, Sums{d, w.Q, nullptr, 0});
      for (std::int64_t block = 0; block * kDropoutBlock < n; ++block) {
        const std::int64_t c0 = block * kDropoutBlock;
        std::uint64_t masks[kStrip];
        if (kDropout) {
          dropout_block_masks(stream, a.example[example], j, rows, head, i0 / kDropoutBlock + block,
                              masks);
        }
        for_panels(n - c0 < kDropoutBlock ? n - c0 : kDropoutBlock,
                   [&](std::int64_t c, auto count) {
                     recompute_probabilities<P, count.value, kDropout>(
                         s + c0 + c, d + c0 + c, w.Q, rows, h.scale, shift + c0 + c, masks, c,
                         sums + c0 + c, totals + c0 + c, w.kept + j * w.Q + c0 + c);
                   });
      }
    }
    if constexpr (!kPairs) {
      // Divides the D elements of each query by the sum, which is cheaper than dividing S of P and dS.
      alignas(64) float inverses[kBackwardQueries];
      for (std::int64_t c = 0; c < n; c += kLanes) {
        const Vec inverse = broadcast(1.0f) / load(totals + c);
        store(inverses + c, inverse);
        store(sums + c, load(sums + c) * inverse);
        store(factors + c, load(factors + c) * inverse);
      }
      scale_rows(w.d_out_rows, m, w.Dp, inverses);
      scale_rows(w.query_rows, m, w.Dp, inverses);
    }
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = h.keys - j < kStrip ? h.keys - j : kStrip;
      for_panels(n, [&](std::int64_t c, auto count) {
        score_gradients<P, E, count.value>(w.scores + j * w.Q + c, w.d_scores + j * w.Q + c, w.Q,
                                           rows, sums + c, over_queries + j * w.Q + c,
                                           over_keys + j / kPack * w.Q + c);
      });
    }
    const std::int64_t query_elements = (m + kPack - 1) / kPack;
    const E* const p = reinterpret_cast<const E*>(w.kept);
    add_product(h.keys, w.Dp, query_elements, Left<E>{p, w.Q / kPack, 1}, w.d_out_rows, w.d_values,
                first, last, stream.scale, dv, h.stride, D);
    const E* const ds = kPack == 2 ? reinterpret_cast<const E*>(over_queries) : over_keys;
    add_product(h.keys, w.Dp, query_elements, Left<E>{ds, w.Q / kPack, 1}, w.query_rows, w.d_keys,
                first, last, ds_factor, dk, h.stride, D);
    product(m, w.Dp, key_elements, Left<E>{over_keys, 1, w.Q}, w.key_rows,
            Result<Activation>{dq + i0 * h.stride, h.stride, D, factors, 1, nullptr, 0});
  }
  for (std::int64_t j = h.keys; j < S; ++j) {
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      store_n(dk + j * h.stride + d, broadcast(0.0f), n);
      store_n(dv + j * h.stride + d, broadcast(0.0f), n);
    });
  }
}

template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                        std::int64_t example, Range heads, std::byte* scratch) {
  if (b.forward.cu_seqlens[example] == b.forward.cu_seqlens[example + 1]) return;
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    const bool another = head + 1 < heads.end;
    stream.threshold == 0
        ? attention_backward_head<Activation, false>(b, stream, example, head, another, scratch)
        : attention_backward_head<Activation, true>(b, stream, example, head, another, scratch);
  }
}

}  // namespace
}  // namespace tilewright::kernels
