// Backward of attention on AVX512-BF16, whose products multiply pairs of bf16. One pass over the
// scores: sum_j P dP of a query is dO . O. The rounding of O, and of P in it, adds at most 2^-8 of
// sum |dO O| and of sum P |dP|.
namespace tilewright::kernels {
namespace {

static_assert(kPanel == kDropoutBlock);

struct PairBackwardWorkspace {
  PairBackwardWorkspace(std::byte* base, std::int64_t S, std::int64_t D)
      : Q(block_columns(S, kBackwardQueries)),
        panel(block_columns(S, kPanel)),
        Dp(round_up(D, kLanes)),
        rows(round_up(S, 2)),
        scratch(base),
        in_place(reads_keys_in_place<bf16>(S, kBackwardQueries)),
        keys(scratch.take<Pair>(in_place ? 0 : S * D / 2)),
        values(scratch.take<Pair>(in_place ? 0 : S * D / 2)),
        queries_t(scratch, D / 2, panel),
        d_out_t(scratch, D / 2, panel),
        out_t(scratch, D / 2, panel),
        key_rows(scratch, rows / 2, Dp),
        query_rows(scratch, Q / 2, Dp),
        d_out_rows(scratch, Q / 2, Dp),
        scores(scratch.take<float>(kStrip * panel)),
        d_probabilities(scratch.take<float>(kStrip * panel)),
        kept(scratch.take<bf16>(rows * Q)),
        d_scores(scratch.take<bf16>(rows * Q)),
        d_score_pairs(scratch.take<Pair>(rows / 2 * panel)),
        d_keys(scratch.take<float>(S > kBackwardQueries ? S * Dp : 0)),
        d_values(scratch.take<float>(S > kBackwardQueries ? S * Dp : 0)) {}
  std::int64_t Q;      // queries of a block, rounded up to whole vectors
  std::int64_t panel;  // those of a panel
  std::int64_t Dp;     // D rounded up to whole vectors
  std::int64_t rows;   // S rounded up to pairs
  Scratch scratch;
  bool in_place;
  Pair* keys;               // K as A, if not in place
  Pair* values;             // V likewise
  Panels<Pair> queries_t;   // Q^T of the panel, as B
  Panels<Pair> d_out_t;     // dO^T likewise
  Panels<Pair> out_t;       // O^T likewise
  Panels<Pair> key_rows;    // K as B over keys
  Panels<Pair> query_rows;  // Q of the block, as B over queries
  Panels<Pair> d_out_rows;  // dO likewise
  float* scores;            // [kStrip, panel]
  float* d_probabilities;   // [kStrip, panel]: dP before dropout
  bf16* kept;               // [rows, Q]: P after dropout, as A over queries
  bf16* d_scores;           // [rows, Q]: dS likewise
  Pair* d_score_pairs;      // [rows / 2, panel]: dS as A over keys
  float* d_keys;            // [S, Dp]
  float* d_values;          // [S, Dp]
};

// sum_j P dP of each query of a panel, without the scale of dropout, from the same dot products as
// dP: without dropout, the bits are the same for a query with one key.
inline void compute_deltas(const PairBackwardWorkspace& w, std::int64_t n, std::int64_t D,
                           float scale, float* deltas) {
  const Vec unscale = broadcast(1.0f) / broadcast(scale);
  for (std::int64_t c = 0; c < n; c += kLanes) {
    Vec sum = broadcast(0.0f);
    for (std::int64_t d = 0; d < D / 2; ++d) {
      sum = multiply_pairs(load_pairs(w.out_t.at(d, c)), load_pairs(w.d_out_t.at(d, c)), sum);
    }
    store(deltas + c, sum * unscale);
  }
}

// Columns of P = 2^(scale s + shift) after dropout, without the scale, and of dS = P (dP - delta),
// for successive rows.
template <int kVectors, bool kDropout>
void probabilities_and_gradients(const PairBackwardWorkspace& w, std::int64_t rows, float scale,
                                 const float* shift, const float* deltas, const StripMasks& masks,
                                 bf16* kept, bf16* d_scores, Pair* d_score_pairs) {
  const Vec scales = broadcast(scale);
  Vec offset[kVectors];
  Vec delta[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    offset[v] = load(shift + v * kLanes);
    delta[v] = load(deltas + v * kLanes);
  }
  const auto probability = [&](std::int64_t j, int v) {
    // The bound is for scores so large that the log-sum-exp is rounded by more than one.
    const Vec score = load(w.scores + j * w.panel + v * kLanes);
    return exp2_for_bf16(minimum(broadcast(0.0f), mul_add(score, scales, offset[v])));
  };
  const auto gradient = [&](std::int64_t j, int v, Vec p, std::uint32_t bits) {
    Vec dp = load(w.d_probabilities + j * w.panel + v * kLanes);
    if (kDropout) dp = select_or_zero(mask_from_bits(bits), dp);
    return p * (dp - delta[v]);
  };
  for (std::int64_t j = 0; j < rows; j += 2) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::uint32_t bits = kDropout ? masks.pair(j, v * kLanes) : ~0u;
      const std::int64_t at = j * w.Q + v * kLanes;
      const Vec p = probability(j, v);
      const Vec ds = gradient(j, v, p, bits);
      Vec next_p = broadcast(0.0f);
      Vec next_ds = broadcast(0.0f);
      if (j + 1 < rows) {
        next_p = probability(j + 1, v);
        next_ds = gradient(j + 1, v, next_p, bits >> kMaskColumns);
      }
      store_rows(kept + at, kept + at + w.Q, round_two(p, next_p, bits));
      const __m512i two = round_two(ds, next_ds);
      store_rows(d_scores + at, d_scores + at + w.Q, two);
      store_pairs(d_score_pairs + j / 2 * w.panel + v * kLanes, pairs_of_two(two));
    }
  }
}

template <bool kDropout>
void attention_backward_pairs_head(const AttentionBackward<bf16>& b, const DropoutStream& stream,
                                   std::int64_t example, std::int64_t head, bool another,
                                   std::byte* scratch) {
  const AttentionForward<bf16>& a = b.forward;
  const Head<bf16> h(a, example, head);
  const std::int64_t S = h.S;
  const std::int64_t D = h.D;
  const PairBackwardWorkspace w(scratch, S, D);
  const bf16* const d_context = b.d_context + h.context_offset;
  const bf16* const context = a.context + h.context_offset;
  bf16* const dq = b.d_qkv + h.offset;
  bf16* const dk = dq + h.width;
  bf16* const dv = dk + h.width;
  const Left<Pair> keys = as_left(h.k, h.stride, h.keys, D, w.keys, w.in_place);
  const Left<Pair> values = as_left(h.v, h.stride, h.keys, D, w.values, w.in_place);
  pack_rows(h.k, h.stride, h.keys, D, w.key_rows);
  const std::int64_t strips = ceil_div(h.keys, kStrip);
  RowsAhead<const bf16, false> next_head(S, D, strips * ceil_div(S, kPanel));
  if (another) {
    for (const bf16* p : {h.q, h.k, h.v}) next_head.add(p + D, h.stride);
    for (const bf16* p : {d_context, context}) next_head.add(p + D, h.width);
  }
  // dP and dS are computed without the factors of dropout and of the scores.
  const float ds_factor = h.scale * stream.scale;
  const std::int64_t key_pairs = ceil_div(h.keys, 2);
  for (std::int64_t i0 = 0; i0 < S; i0 += kBackwardQueries) {
    const std::int64_t block = smaller(S - i0, kBackwardQueries);
    const bool first = i0 == 0;
    const bool last = i0 + block == S;
    pack_rows(h.q + i0 * h.stride, h.stride, block, D, w.query_rows);
    pack_rows(d_context + i0 * h.width, h.width, block, D, w.d_out_rows);
    RowsAhead<bf16, true> d_key_values(last ? S : 0, D, strips * ceil_div(block, kPanel));
    for (bf16* p : {dk, dv}) d_key_values.add(p, h.stride);
    for (std::int64_t i = 0; i < block; i += kPanel) {
      const std::int64_t m = smaller(block - i, kPanel);
      const std::int64_t n = round_up(m, kLanes);
      const std::int64_t query = i0 + i;
      pack_transposed(h.q + query * h.stride, h.stride, m, D, w.queries_t);
      pack_transposed(d_context + query * h.width, h.width, m, D, w.d_out_t);
      pack_transposed(context + query * h.width, h.width, m, D, w.out_t);
      alignas(64) float shift[kPanel];
      alignas(64) float deltas[kPanel];
      for (std::int64_t c = 0; c < n; c += kLanes) {
        store(shift + c,
              load_n(h.log_sum_exp + query + c, smaller(m - c, kLanes)) * broadcast(-kLog2E));
      }
      compute_deltas(w, n, D, stream.scale, deltas);
      const BlockMasks block_masks(stream, a.example[example], head, query / kDropoutBlock);
      StripMasks masks;
      RowsAhead<bf16, true> d_queries(m, D, strips);
      d_queries.add(dq + query * h.stride, h.stride);
      for (std::int64_t j = 0; j < h.keys; j += kStrip) {
        const std::int64_t rows = smaller(h.keys - j, kStrip);
        next_head.prefetch_part();
        d_key_values.prefetch_part();
        d_queries.prefetch_part();
        product(rows, n, D / 2, from_row(keys, j), w.queries_t,
                Sums{w.scores, w.panel, nullptr, 0});
        product(rows, n, D / 2, from_row(values, j), w.d_out_t,
                Sums{w.d_probabilities, w.panel, nullptr, 0});
        if (kDropout) masks.draw(block_masks, j, rows);
        for_panels(n, [&](std::int64_t, auto count) {
          probabilities_and_gradients<count.value, kDropout>(
              w, rows, h.scale * kLog2E, shift, deltas, masks, w.kept + j * w.Q + i,
              w.d_scores + j * w.Q + i, w.d_score_pairs + j / 2 * w.panel);
        });
      }
      product(m, w.Dp, key_pairs, Left<Pair>{w.d_score_pairs, 1, w.panel}, w.key_rows,
              Result<bf16>{dq + query * h.stride, h.stride, D, &ds_factor, 0, nullptr, 0});
    }
    const auto over_queries = [&](const bf16* p) {
      return Left<Pair>{reinterpret_cast<const Pair*>(p), w.Q / 2, 1};
    };
    const std::int64_t query_pairs = ceil_div(block, 2);
    add_product(h.keys, w.Dp, query_pairs, over_queries(w.kept), w.d_out_rows, w.d_values, first,
                last, stream.scale, dv, h.stride, D);
    add_product(h.keys, w.Dp, query_pairs, over_queries(w.d_scores), w.query_rows, w.d_keys, first,
                last, ds_factor, dk, h.stride, D);
  }
  clear_unattended(h, dk, dv);
}

template <>
void attention_backward(const AttentionBackward<bf16>& b, const DropoutStream& stream,
                        std::int64_t example, Range heads, std::byte* scratch) {
  for_heads(heads, [&](std::int64_t head, bool another) {
    stream.threshold == 0
        ? attention_backward_pairs_head<false>(b, stream, example, head, another, scratch)
        : attention_backward_pairs_head<true>(b, stream, example, head, another, scratch);
  });
}
template <>
std::size_t attention_scratch<bf16>(std::int64_t max_seqlen, std::int64_t head_size) {
  return larger_workspace<ForwardWorkspace<bf16>, PairBackwardWorkspace>(max_seqlen, head_size);
}

}  // namespace
}  // namespace tilewright::kernels
