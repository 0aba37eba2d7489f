// Layer norm with residual, embeddings and dropout. A row is read from memory once and stays in the
// L1 cache for the following passes.
namespace tilewright::kernels {
namespace {

// Rows between a load and the prefetch of later rows (also beyond the end, because a prefetch
// cannot fault): hardware prefetchers stop at the end of a page, here of one or a few rows.
constexpr std::int64_t kPrefetchRows = 4;

// Sums body(column, n), whose lanes beyond n must be zero, over a row. The order of additions, in
// four vectors of partial sums, depends only on the column.
template <typename Body>
inline float row_sum(std::int64_t H, Body&& body) {
  Vec a = broadcast(0.0f), b = a, c = a, d = a;
  std::int64_t h = 0;
  for (; h + 4 * kLanes <= H; h += 4 * kLanes) {
    a = a + body(h, kLanes);
    b = b + body(h + kLanes, kLanes);
    c = c + body(h + 2 * kLanes, kLanes);
    d = d + body(h + 3 * kLanes, kLanes);
  }
  for (; h + kLanes <= H; h += kLanes) a = a + body(h, kLanes);
  if (h < H) b = b + body(h, H - h);
  return horizontal_sum((a + b) + (c + d));
}

struct Statistics {
  float mean;
  float rstd;
};

inline Statistics statistics(const float* x, float total, std::int64_t H, float epsilon) {
  const float mean = total / static_cast<float>(H);
  const Vec m = broadcast(mean);
  const float squares = row_sum(H, [&](std::int64_t h, std::int64_t n) {
    const Vec d = select_or_zero(first_lanes(n), load_n(x + h, n) - m);
    return d * d;
  });
  const Vec variance = broadcast(squares / static_cast<float>(H) + epsilon);
  float inverse[kLanes];
  store(inverse, broadcast(1.0f) / square_root(variance));
  return {mean, inverse[0]};
}

// (x - mean) / deviation * gamma + beta.
inline Vec normed(Vec x, Vec mean, Vec inverse, const LayerNorm& norm, std::int64_t h,
                  std::int64_t n) {
  return mul_add((x - mean) * inverse, load_n(norm.gamma + h, n), load_n(norm.beta + h, n));
}

// Stores the statistics of row t and y, with dropout if kDropout.
template <typename Activation, bool kDropout>
inline void write_normed(const NormForward<Activation>& a, std::int64_t t, Statistics s,
                         const RowMasks<>& masks) {
  const float* sum = a.sum + t * a.H;
  float* y32 = a.y32 == nullptr ? nullptr : a.y32 + t * a.H;
  Activation* y = a.y + t * a.H;
  const Vec mean = broadcast(s.mean);
  const Vec inverse = broadcast(s.rstd);
  for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
    const Vec kept =
        masks.apply<kDropout>(h, normed(load_n(sum + h, n), mean, inverse, a.norm, h, n));
    if (y32 != nullptr) store_n(y32 + h, kept, n);
    store_n(y + h, kept, n);
  });
  a.stats[2 * t] = s.mean;
  a.stats[2 * t + 1] = s.rstd;
}

template <typename Activation, bool kDropout>
void embed_norm_forward_rows(const NormForward<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    const float* word = a.word + a.ids[t] * a.H;
    const float* position = a.position + a.positions[t] * a.H;
    const float* type = a.type == nullptr ? nullptr : a.type + a.types[t] * a.H;
    float* sum = a.sum + t * a.H;
    const float total = row_sum(a.H, [&](std::int64_t h, std::int64_t n) {
      Vec x = load_n(word + h, n) + load_n(position + h, n);
      if (type != nullptr) x = x + load_n(type + h, n);
      store_n(sum + h, x, n);
      return x;
    });
    masks.draw(t);
    write_normed<Activation, kDropout>(a, t, statistics(sum, total, a.H, a.norm.epsilon), masks);
  }
}

// kNormed: the residual is the norm of its values.
template <typename Activation, bool kDropout, bool kNormed>
void add_norm_forward_rows(const NormForward<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    const Activation* x = a.x + t * a.H;
    const float* residual = a.residual.values + t * a.H;
    float* sum = a.sum + t * a.H;
    Vec mean = broadcast(0.0f), inverse = mean;
    if constexpr (kNormed) {
      mean = broadcast(a.residual.stats[2 * t]);
      inverse = broadcast(a.residual.stats[2 * t + 1]);
    }
    const float total = row_sum(a.H, [&](std::int64_t h, std::int64_t n) {
      prefetch(x + h + kPrefetchRows * a.H);
      prefetch(residual + h + kPrefetchRows * a.H);
      Vec v = load_n(residual + h, n);
      if constexpr (kNormed) v = normed(v, mean, inverse, a.residual.norm, h, n);
      v = v + masks.apply<kDropout>(h, load_n(x + h, n));
      store_n(sum + h, v, n);
      return v;
    });
    write_normed<Activation, false>(a, t, statistics(sum, total, a.H, a.norm.epsilon), masks);
  }
}

// Backward of kRows rows from row t. The running sums of gamma and beta are loaded and stored once
// for them; each column still adds its rows in ascending order. Formula: ref/norm_ref.cpp.
template <int kRows, typename Activation, bool kDropout>
inline void add_norm_backward_rows(const NormBackward<Activation>& a, std::int64_t t,
                                   float* d_gamma, float* d_beta) {
  const std::int64_t H = a.H;
  float* const dy = a.d_stream + t * H;
  const float* const sum = a.sum + t * H;
  const Activation* const branch = a.dy_branch == nullptr ? nullptr : a.dy_branch + t * H;
  Activation* const dx = a.dx == nullptr ? nullptr : a.dx + t * H;
  RowMasks<kRows> masks(a.dropout, a.identity, H);
  masks.draw(t);
  Vec mean[kRows], inverse[kRows], minus_g_mean[kRows], minus_gx_mean[kRows];
  for (int r = 0; r < kRows; ++r) {
    mean[r] = broadcast(a.stats[2 * (t + r)]);
    inverse[r] = broadcast(a.stats[2 * (t + r) + 1]);
    Vec gx = broadcast(0.0f);
    const float g_total = row_sum(H, [&](std::int64_t h, std::int64_t n) {
      const std::int64_t i = r * H + h;
      prefetch(dy + i + kPrefetchRows * H);
      prefetch(sum + i + kPrefetchRows * H);
      Vec d = load_n(dy + i, n);
      if (branch != nullptr) {
        prefetch(branch + i + kPrefetchRows * H);
        d = d + load_n(branch + i, n);
        store_n(dy + i, d, n);
      }
      const Vec g = d * load_n(a.norm.gamma + h, n);  // lanes beyond n: zero
      gx = mul_add(g, (load_n(sum + i, n) - mean[r]) * inverse[r], gx);
      return g;
    });
    minus_g_mean[r] = broadcast(-(g_total / static_cast<float>(H)));
    minus_gx_mean[r] = broadcast(-(horizontal_sum(gx) / static_cast<float>(H)));
  }
  for_vectors(H, [&](std::int64_t h, std::int64_t n) {
    const Vec scale = load_n(a.norm.gamma + h, n);
    Vec gamma = load_n(d_gamma + h, n);
    Vec beta = load_n(d_beta + h, n);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = r * H + h;
      const Vec d = load_n(dy + i, n);
      const Vec x_hat = (load_n(sum + i, n) - mean[r]) * inverse[r];
      gamma = mul_add(d, x_hat, gamma);
      beta = beta + d;
      const Vec centred = mul_add(d, scale, minus_g_mean[r]);
      const Vec d_sum = mul_add(x_hat, minus_gx_mean[r], centred) * inverse[r];
      store_n(dy + i, d_sum, n);
      if (dx != nullptr) store_n(dx + i, masks.template apply<kDropout>(h, d_sum, r), n);
    }
    store_n(d_gamma + h, gamma, n);
    store_n(d_beta + h, beta, n);
  });
}

template <typename Activation, bool kDropout>
void add_norm_backward_rows(const NormBackward<Activation>& a, Range rows, float* d_gamma,
                            float* d_beta) {
  for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
    store_n(d_gamma + h, broadcast(0.0f), n);
    store_n(d_beta + h, broadcast(0.0f), n);
  });
  std::int64_t t = rows.begin;
  for (; t + 4 <= rows.end; t += 4) {
    add_norm_backward_rows<4, Activation, kDropout>(a, t, d_gamma, d_beta);
  }
  for (; t < rows.end; ++t) {
    add_norm_backward_rows<1, Activation, kDropout>(a, t, d_gamma, d_beta);
  }
}

template <typename Activation>
void embed_norm_forward(const NormForward<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? embed_norm_forward_rows<Activation, false>(a, rows)
                           : embed_norm_forward_rows<Activation, true>(a, rows);
}
template <typename Activation>
void add_norm_forward(const NormForward<Activation>& a, Range rows) {
  const bool normed_residual = a.residual.stats != nullptr;
  if (a.dropout.threshold == 0) {
    normed_residual ? add_norm_forward_rows<Activation, false, true>(a, rows)
                    : add_norm_forward_rows<Activation, false, false>(a, rows);
  } else {
    normed_residual ? add_norm_forward_rows<Activation, true, true>(a, rows)
                    : add_norm_forward_rows<Activation, true, false>(a, rows);
  }
}
template <typename Activation>
void add_norm_backward(const NormBackward<Activation>& a, Range rows, float* d_gamma,
                       float* d_beta) {
  a.dropout.threshold == 0 ? add_norm_backward_rows<Activation, false>(a, rows, d_gamma, d_beta)
                           : add_norm_backward_rows<Activation, true>(a, rows, d_gamma, d_beta);
}

template <typename Activation, bool kDropout>
void dropout_backward_rows(const NormBackward<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    float* dy = a.d_stream + t * a.H;
    const Activation* branch = a.dy_branch == nullptr ? nullptr : a.dy_branch + t * a.H;
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      Vec d = load_n(dy + h, n);
      if (branch != nullptr) d = d + load_n(branch + h, n);
      store_n(dy + h, masks.apply<kDropout>(h, d), n);
    });
  }
}
template <typename Activation>
void dropout_backward(const NormBackward<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? dropout_backward_rows<Activation, false>(a, rows)
                           : dropout_backward_rows<Activation, true>(a, rows);
}

}  // namespace
}  // namespace tilewright::kernels
