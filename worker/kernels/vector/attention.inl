// Attention of the heads of one example. A block of queries is multiplied with all keys, so scratch
// holds complete columns of scores and no S x S matrix (attention_pairs.inl: a few rows). Scores
// are transposed, [keys, queries]: the statistics of a query are one lane, without sums across
// lanes. Formulas: ref/attention_ref.cpp.
namespace tilewright::kernels {
namespace {

// Queries per block. dK and dV of more than one block stay in scratch and are read and written once
// per block.
inline constexpr std::int64_t kForwardQueries = 64;
inline constexpr std::int64_t kBackwardQueries = 128;
static_assert(kForwardQueries == kDropoutBlock && kBackwardQueries == 2 * kDropoutBlock);
// Keys whose scores are computed and used while they are in the L1 cache, a multiple of the rows of
// most tiles and of four.
inline constexpr std::int64_t kStrip = 24;

// The number of queries in a block of at most `most`, rounded up to whole vectors.
inline std::int64_t block_columns(std::int64_t S, std::int64_t most) {
  return round_up(smaller(S, most), kLanes);
}

// Whether K and V are read as A without packing. With several blocks of queries they are read
// several times, so copies without gaps between the rows are faster.
template <typename Activation>
bool reads_keys_in_place(std::int64_t S, std::int64_t block) {
  return kReadsInPlace<Activation> && S <= block;
}

template <typename Activation>
struct ForwardWorkspace {
  using E = Element<Activation>;
  static constexpr std::int64_t kPack = kPerElement<Activation>;
  ForwardWorkspace(std::byte* base, std::int64_t S, std::int64_t D)
      : Q(block_columns(S, kForwardQueries)),
        Dp(round_up(D, kLanes)),
        scratch(base),
        in_place(reads_keys_in_place<Activation>(S, kForwardQueries)),
        keys(scratch.take<E>(in_place ? 0 : S * D / kPack)),
        queries_t(scratch, D / kPack, Q),
        value_rows(scratch, ceil_div(S, kPack), Dp),
        scores(scratch.take<float>(S * Q)) {}
  std::int64_t Q, Dp;  // queries of a block and D rounded up to whole vectors
  Scratch scratch;
  bool in_place;
  E* keys;               // K as A, if not in place
  Panels<E> queries_t;   // Q^T of the block, as B
  Panels<E> value_rows;  // V as B over keys
  float* scores;         // [keys, Q], then numerators as A
};

// Backward in fp32.
template <typename Activation>
struct BackwardWorkspace {
  BackwardWorkspace(std::byte* base, std::int64_t S, std::int64_t D)
      : Q(block_columns(S, kBackwardQueries)),
        Dp(round_up(D, kLanes)),
        scratch(base),
        in_place(reads_keys_in_place<Activation>(S, kBackwardQueries)),
        keys(scratch.take<float>(in_place ? 0 : S * D)),
        values(scratch.take<float>(in_place ? 0 : S * D)),
        queries_t(scratch, D, Q),
        d_out_t(scratch, D, Q),
        key_rows(scratch, S, Dp),
        query_rows(scratch, Q, Dp),
        d_out_rows(scratch, Q, Dp),
        scores(scratch.take<float>(S * Q)),
        d_scores(scratch.take<float>(S * Q)),
        kept(scratch.take<float>(S * Q)),
        d_keys(scratch.take<float>(S > kBackwardQueries ? S * Dp : 0)),
        d_values(scratch.take<float>(S > kBackwardQueries ? S * Dp : 0)) {}
  std::int64_t Q, Dp;  // queries of a block and D rounded up to whole vectors
  Scratch scratch;
  bool in_place;
  float* keys;               // K as A, if not in place
  float* values;             // V likewise
  Panels<float> queries_t;   // Q^T of the block, as B
  Panels<float> d_out_t;     // dO^T of the block, as B
  Panels<float> key_rows;    // K as B over keys
  Panels<float> query_rows;  // Q of the block, as B over queries
  Panels<float> d_out_rows;  // dO of the block, as B over queries
  float* scores;             // [S, Q], then P
  float* d_scores;           // [S, Q]: dP, then dS
  float* kept;               // [S, Q]: P after dropout
  float* d_keys;             // [S, Dp]
  float* d_values;           // [S, Dp]
};

// Rows of activations as A, packed to `copy` unless they are read in place.
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

// The masks of a strip and a block of queries.
struct StripMasks {
  static constexpr std::int64_t kKeyPairs = kStrip / 2;
  void draw(const BlockMasks& block, std::int64_t first, std::int64_t rows) {
    block.draw(first, rows, kKeyPairs, numbers);
  }
  // The bits of two keys and kMaskColumns queries.
  std::uint32_t pair(std::int64_t j, std::int64_t column) const {
    return numbers[column / kMaskColumns * kKeyPairs + j / 2];
  }
  // The bits of key j and kLanes queries.
  Mask mask(std::int64_t j, std::int64_t column) const {
    const std::uint32_t bits = pair(j, column) >> (j % 2 * kMaskColumns + column % kMaskColumns);
    return mask_from_bits(bits & ((1u << kLanes) - 1u));
  }
  std::uint32_t numbers[kMaskNumbers * kKeyPairs];
};

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

// Computes e = 2^(scale (s - largest)) of columns of scores, zero where dropped, as A over keys in
// `p`, which may be s. sums: of all e before dropout; two partial sums per query, of even and odd
// keys.
template <typename E, int kVectors, bool kDropout>
void softmax_numerators(const float* s, std::int64_t stride, std::int64_t rows, float scale,
                        const float* largest, const StripMasks& masks, std::int64_t column,
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
    const Vec x = (load(s + j * stride + v * kLanes) - top[v]) * scales;
    return kPairs ? exp2_for_bf16(x) : exp2(x);
  };
  const auto kept = [&](std::int64_t j, int v, Vec e) {
    return kDropout ? select_or_zero(masks.mask(j, column + v * kLanes), e) : e;
  };
  std::int64_t j = 0;
  for (; j + 2 <= rows; j += 2) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec first = numerator(j, v);
      const Vec second = numerator(j + 1, v);
      sum[0][v] = sum[0][v] + first;
      sum[1][v] = sum[1][v] + second;
      if constexpr (kPairs) {
        const std::uint32_t bits = kDropout ? masks.pair(j, column + v * kLanes) : ~0u;
        store_pairs(p + j / 2 * stride + v * kLanes, first, second, bits);
      } else {
        store(p + j * stride + v * kLanes, kept(j, v, first));
        store(p + (j + 1) * stride + v * kLanes, kept(j + 1, v, second));
      }
    }
  }
  if (j < rows) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec last = numerator(j, v);
      sum[0][v] = sum[0][v] + last;
      if constexpr (kPairs) {
        store_pairs(p + j / 2 * stride + v * kLanes, kept(j, v, last), broadcast(0.0f));
      } else {
        store(p + j * stride + v * kLanes, kept(j, v, last));
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
                            std::int64_t example, std::int64_t head, Range queries, bool another,
                            std::byte* scratch) {
  using E = Element<Activation>;
  constexpr std::int64_t kPack = kPerElement<Activation>;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  const ForwardWorkspace<Activation> w(scratch, S, D);
  Activation* const context = a.context + h.context_offset;
  const Left<E> keys = as_left(h.k, h.stride, h.keys, D, w.keys, w.in_place);
  pack_rows(h.v, h.stride, h.keys, D, w.value_rows);
  const std::int64_t parts = ceil_div(h.keys, kStrip);
  RowsAhead<const Activation, false> next_head(
      S, D, parts * ceil_div(queries.end - queries.begin, kForwardQueries));
  if (another) {
    for (const Activation* p : {h.q, h.k, h.v}) next_head.add(p + D, h.stride);
  }
  for (std::int64_t i0 = queries.begin; i0 < queries.end; i0 += kForwardQueries) {
    const std::int64_t m = smaller(queries.end - i0, kForwardQueries);
    const std::int64_t n = round_up(m, kLanes);
    RowsAhead<Activation, true> results(m, D, parts);
    results.add(context + i0 * h.width, h.width);
    pack_transposed(h.q + i0 * h.stride, h.stride, m, D, w.queries_t);
    alignas(64) float largest[kForwardQueries];
    alignas(64) float sums[2][kForwardQueries] = {};
    alignas(64) float factors[kForwardQueries];
    for (float& x : largest) x = -__builtin_inff();
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = smaller(h.keys - j, kStrip);
      float* s = w.scores + j * w.Q;
      next_head.prefetch_part();
      results.prefetch_part();
      product(rows, n, D / kPack, from_row(keys, j), w.queries_t, Sums{s, w.Q, nullptr, 0});
      for_panels(n, [&](std::int64_t c, auto count) {
        raise_maximum<count.value>(s + c, w.Q, rows, largest + c);
      });
    }
    const float scale = h.scale * kLog2E;
    E* const p = reinterpret_cast<E*>(w.scores);
    const BlockMasks block(stream, a.example[example], head, i0 / kDropoutBlock);
    StripMasks masks;
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = smaller(h.keys - j, kStrip);
      if (kDropout) masks.draw(block, j, rows);
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
      store_n(h.log_sum_exp + i0 + c, load(lse), smaller(m - c, kLanes));
    }
    // Divides the D outputs by the sum, which is cheaper than dividing S probabilities.
    product(m, w.Dp, ceil_div(h.keys, kPack), Left<E>{p, 1, w.Q}, w.value_rows,
            Result<Activation>{context + i0 * h.width, h.width, D, factors, 1, nullptr, 0});
  }
}
template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, Range heads, Range queries, std::byte* scratch) {
  for_heads(heads, [&](std::int64_t head, bool another) {
    stream.threshold == 0 ? attention_forward_head<Activation, false>(a, stream, example, head,
                                                                      queries, another, scratch)
                          : attention_forward_head<Activation, true>(a, stream, example, head,
                                                                     queries, another, scratch);
  });
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

// Zeroes dK and dV of the tokens that are not attended.
template <typename Activation>
void clear_unattended(const Head<Activation>& h, Activation* dk, Activation* dv) {
  for (std::int64_t j = h.keys; j < h.S; ++j) {
    for_vectors(h.D, [&](std::int64_t d, std::int64_t n) {
      store_n(dk + j * h.stride + d, broadcast(0.0f), n);
      store_n(dv + j * h.stride + d, broadcast(0.0f), n);
    });
  }
}

// Backward in fp32 needs two passes over the scores, because P is computed as in forward: with a
// rounded log-sum-exp all P of a query would be too large or too small by one factor, and rows of
// dS would have a sum other than zero, which gradients in fp32 show.

// Replaces columns of scores by forward's numerators e of P, and of dP by its value after dropout
// without the scale. Adds e to `totals` and e dP to `sums` of each query. `kept`: e after dropout.
template <int kVectors, bool kDropout>
void recompute_numerators(float* s, float* d, std::int64_t stride, std::int64_t rows, float scale,
                          const float* largest, const StripMasks& masks, std::int64_t column,
                          float* sums, float* totals, float* kept) {
  const Vec scales = broadcast(scale);
  Vec top[kVectors];
  Vec sum[kVectors];
  Vec total[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    top[v] = load(largest + v * kLanes);
    sum[v] = broadcast(0.0f);
    total[v] = broadcast(0.0f);
  }
  for (std::int64_t j = 0; j < rows; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = j * stride + v * kLanes;
      const Vec e = exp2((load(s + at) - top[v]) * scales);
      total[v] = total[v] + e;
      store(s + at, e);
      Vec dp = load(d + at);
      if (kDropout) {
        const Mask mask = masks.mask(j, column + v * kLanes);
        dp = select_or_zero(mask, dp);
        store(d + at, dp);
        store(kept + at, select_or_zero(mask, e));
      } else {
        store(kept + at, e);
      }
      sum[v] = mul_add(e, dp, sum[v]);
    }
  }
  // A sum over the rows of each call first: fewer roundings of large sums.
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(sums + v * kLanes, load(sums + v * kLanes) + sum[v]);
    store(totals + v * kLanes, load(totals + v * kLanes) + total[v]);
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

// Replaces columns of dP by dS = e (dP - sum) for successive rows.
template <int kVectors>
void score_gradients(const float* e, float* d, std::int64_t stride, std::int64_t rows,
                     const float* sums) {
  Vec sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sum[v] = load(sums + v * kLanes);
  for (std::int64_t j = 0; j < rows; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = j * stride + v * kLanes;
      store(d + at, load(e + at) * (load(d + at) - sum[v]));
    }
  }
}

template <typename Activation, bool kDropout>
void attention_backward_head(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                             std::int64_t example, std::int64_t head, bool another,
                             std::byte* scratch) {
  static_assert(kPerElement<Activation> == 1);
  const AttentionForward<Activation>& a = b.forward;
  const Head<Activation> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  const BackwardWorkspace<Activation> w(scratch, S, D);
  const Activation* const d_context = b.d_context + h.context_offset;
  Activation* const dq = b.d_qkv + h.offset;
  Activation* const dk = dq + h.width;
  Activation* const dv = dk + h.width;
  const Left<float> keys = as_left(h.k, h.stride, h.keys, D, w.keys, w.in_place);
  const Left<float> values = as_left(h.v, h.stride, h.keys, D, w.values, w.in_place);
  pack_rows(h.k, h.stride, h.keys, D, w.key_rows);
  const std::int64_t parts = ceil_div(h.keys, kStrip);
  RowsAhead<const Activation, false> next_head(S, D, parts * ceil_div(S, kBackwardQueries));
  if (another) {
    for (const Activation* p : {h.q, h.k, h.v}) next_head.add(p + D, h.stride);
    next_head.add(d_context + D, h.width);
  }
  // dP and dS are computed without the factors of dropout and of the scores.
  const float ds_factor = h.scale * stream.scale;
  for (std::int64_t i0 = 0; i0 < S; i0 += kBackwardQueries) {
    const std::int64_t m = smaller(S - i0, kBackwardQueries);
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
    alignas(64) float largest[kBackwardQueries];
    alignas(64) float sums[kBackwardQueries] = {};
    alignas(64) float totals[kBackwardQueries] = {};
    alignas(64) float factors[kBackwardQueries];  // of dQ
    for (float& x : largest) x = -__builtin_inff();
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = smaller(h.keys - j, kStrip);
      float* const s = w.scores + j * w.Q;
      product(rows, n, D, from_row(keys, j), w.queries_t, Sums{s, w.Q, nullptr, 0});
      for_panels(n, [&](std::int64_t c, auto count) {
        raise_maximum<count.value>(s + c, w.Q, rows, largest + c);
      });
    }
    const auto block_masks = [&](std::int64_t block) {
      return BlockMasks(stream, a.example[example], head, i0 / kDropoutBlock + block);
    };
    const BlockMasks drawn[2] = {block_masks(0), block_masks(1)};
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = smaller(h.keys - j, kStrip);
      float* const s = w.scores + j * w.Q;
      float* const d = w.d_scores + j * w.Q;
      next_head.prefetch_part();
      d_queries.prefetch_part();
      d_key_values.prefetch_part();
      product(rows, n, D, from_row(values, j), w.d_out_t, Sums{d, w.Q, nullptr, 0});
      for (std::int64_t c0 = 0; c0 < n; c0 += kDropoutBlock) {
        StripMasks masks;
        if (kDropout) masks.draw(drawn[c0 / kDropoutBlock], j, rows);
        for_panels(smaller(n - c0, kDropoutBlock), [&](std::int64_t c, auto count) {
          const std::int64_t at = c0 + c;
          recompute_numerators<count.value, kDropout>(s + at, d + at, w.Q, rows, h.scale * kLog2E,
                                                      largest + at, masks, c, sums + at,
                                                      totals + at, w.kept + j * w.Q + at);
        });
      }
    }
    // Divides the D elements of each query by the sum, which is cheaper than dividing S of P and
    // dS.
    alignas(64) float inverses[kBackwardQueries];
    for (std::int64_t c = 0; c < n; c += kLanes) {
      const Vec inverse = broadcast(1.0f) / load(totals + c);
      store(inverses + c, inverse);
      store(sums + c, load(sums + c) * inverse);
      store(factors + c, broadcast(ds_factor) * inverse);
    }
    scale_rows(w.d_out_rows, m, w.Dp, inverses);
    scale_rows(w.query_rows, m, w.Dp, inverses);
    for (std::int64_t j = 0; j < h.keys; j += kStrip) {
      const std::int64_t rows = smaller(h.keys - j, kStrip);
      for_panels(n, [&](std::int64_t c, auto count) {
        score_gradients<count.value>(w.scores + j * w.Q + c, w.d_scores + j * w.Q + c, w.Q, rows,
                                     sums + c);
      });
    }
    add_product(h.keys, w.Dp, m, Left<float>{w.kept, w.Q, 1}, w.d_out_rows, w.d_values, first, last,
                stream.scale, dv, h.stride, D);
    add_product(h.keys, w.Dp, m, Left<float>{w.d_scores, w.Q, 1}, w.query_rows, w.d_keys, first,
                last, ds_factor, dk, h.stride, D);
    product(m, w.Dp, h.keys, Left<float>{w.d_scores, 1, w.Q}, w.key_rows,
            Result<Activation>{dq + i0 * h.stride, h.stride, D, factors, 1, nullptr, 0});
  }
  clear_unattended(h, dk, dv);
}

template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                        std::int64_t example, Range heads, std::byte* scratch) {
  for_heads(heads, [&](std::int64_t head, bool another) {
    stream.threshold == 0
        ? attention_backward_head<Activation, false>(b, stream, example, head, another, scratch)
        : attention_backward_head<Activation, true>(b, stream, example, head, another, scratch);
  });
}

// The larger of the two. A batch's longest example needs the most, except that one block of queries
// needs no sums.
template <class Forward, class Backward>
std::size_t larger_workspace(std::int64_t max_seqlen, std::int64_t head_size) {
  const std::size_t forward = Forward(nullptr, max_seqlen, head_size).scratch.used();
  const std::size_t backward = Backward(nullptr, max_seqlen, head_size).scratch.used();
  return forward > backward ? forward : backward;
}
template <typename Activation>
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return larger_workspace<ForwardWorkspace<Activation>, BackwardWorkspace<Activation>>(max_seqlen,
                                                                                       head_size);
}

}  // namespace
}  // namespace tilewright::kernels
