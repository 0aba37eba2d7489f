// Layer norm with residual, embeddings and dropout. A row is read from memory once and stays in the
// L1 cache for the following passes.
namespace tilewright::kernels {
namespace {

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

// y = (x - mean) / deviation * gamma + beta, with dropout if kDropout.
template <typename Activation, bool kDropout>
inline void write_normed(const NormForward<Activation>& a, std::int64_t t, Statistics s,
                         const RowMasks& masks) {
  const float* sum = a.sum + t * a.H;
  float* y32 = a.y32 + t * a.H;
  Activation* y = a.y == nullptr ? nullptr : a.y + t * a.H;
  const Vec mean = broadcast(s.mean);
  const Vec inverse = broadcast(s.rstd);
  for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
    const Vec x_hat = (load_n(sum + h, n) - mean) * inverse;
    const Vec normed = mul_add(x_hat, load_n(a.norm.gamma + h, n), load_n(a.norm.beta + h, n));
    const Vec kept = masks.apply<kDropout>(h, normed);
    store_n(y32 + h, kept, n);
    if (y != nullptr) store_n(y + h, kept, n);
  });
  a.stats[2 * t] = s.mean;
  a.stats[2 * t + 1] = s.rstd;
}

template <typename Activation, bool kDropout>
void embed_norm_forward_rows(const NormForward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
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

template <typename Activation, bool kDropout>
void add_norm_forward_rows(const NormForward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    const Activation* x = a.x + t * a.H;
    const float* residual = a.residual + t * a.H;
    float* sum = a.sum + t * a.H;
    const float total = row_sum(a.H, [&](std::int64_t h, std::int64_t n) {
      const Vec v = load_n(residual + h, n) + masks.apply<kDropout>(h, load_n(x + h, n));
      store_n(sum + h, v, n);
      return v;
    });
    write_normed<Activation, false>(a, t, statistics(sum, total, a.H, a.norm.epsilon), masks);
  }
}

// Formula: ref/norm_ref.cpp.
template <typename Activation, bool kDropout>
void add_norm_backward_rows(const NormBackward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    float* dy = a.dy32 + t * a.H;
    const Activation* branch = a.dy_branch == nullptr ? nullptr : a.dy_branch + t * a.H;
    const float* sum = a.sum + t * a.H;
    const Vec mean = broadcast(a.stats[2 * t]);
    const Vec inverse = broadcast(a.stats[2 * t + 1]);
    Vec gx_even = broadcast(0.0f);
    const float g_total = row_sum(a.H, [&](std::int64_t h, std::int64_t n) {
      Vec d = load_n(dy + h, n);
      if (branch != nullptr) {
        d = d + load_n(branch + h, n);
        store_n(dy + h, d, n);
      }
      const Vec g = d * load_n(a.norm.gamma + h, n);  // lanes beyond n: zero
      gx_even = mul_add(g, (load_n(sum + h, n) - mean) * inverse, gx_even);
      return g;
    });
    const Vec g_mean = broadcast(g_total / static_cast<float>(a.H));
    const Vec gx_mean = broadcast(horizontal_sum(gx_even) / static_cast<float>(a.H));
    masks.draw(t);
    float* d_sum = a.d_sum + t * a.H;
    Activation* dx = a.dx == nullptr ? nullptr : a.dx + t * a.H;
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      const Vec g = load_n(dy + h, n) * load_n(a.norm.gamma + h, n);
      const Vec x_hat = (load_n(sum + h, n) - mean) * inverse;
      const Vec d = (g - g_mean - x_hat * gx_mean) * inverse;
      store_n(d_sum + h, d, n);
      if (dx != nullptr) store_n(dx + h, masks.apply<kDropout>(h, d), n);
    });
  }
}

template <typename Activation>
void embed_norm_forward(const NormForward<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? embed_norm_forward_rows<Activation, false>(a, rows)
                           : embed_norm_forward_rows<Activation, true>(a, rows);
}
template <typename Activation>
void add_norm_forward(const NormForward<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? add_norm_forward_rows<Activation, false>(a, rows)
                           : add_norm_forward_rows<Activation, true>(a, rows);
}
template <typename Activation>
void add_norm_backward(const NormBackward<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? add_norm_backward_rows<Activation, false>(a, rows)
                           : add_norm_backward_rows<Activation, true>(a, rows);
}

template <typename Activation, bool kDropout>
void dropout_backward_rows(const NormBackward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    float* dy = a.dy32 + t * a.H;
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

// kRows rows at a time, so that the running sums are loaded and stored once per kRows rows. Each
// column still adds its rows in ascending order.
template <int kRows>
inline void norm_parameters_rows(const float* dy, const float* sum, const float* stats,
                                 std::int64_t H, std::int64_t t, Range columns, float* d_gamma,
                                 float* d_beta) {
  for_vectors(columns.end - columns.begin, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t h = columns.begin + i;
    Vec gamma = load_n(d_gamma + i, n);
    Vec beta = load_n(d_beta + i, n);
    for (int r = 0; r < kRows; ++r) {
      const Vec d = load_n(dy + (t + r) * H + h, n);
      const Vec x_hat = (load_n(sum + (t + r) * H + h, n) - broadcast(stats[2 * (t + r)])) *
                        broadcast(stats[2 * (t + r) + 1]);
      gamma = mul_add(d, x_hat, gamma);
      beta = beta + d;
    }
    store_n(d_gamma + i, gamma, n);
    store_n(d_beta + i, beta, n);
  });
}
void norm_parameters(const float* dy, const float* sum, const float* stats, std::int64_t H,
                     Range rows, Range columns, float* d_gamma, float* d_beta) {
  std::int64_t t = rows.begin;
  for (; t + 4 <= rows.end; t += 4) {
    norm_parameters_rows<4>(dy, sum, stats, H, t, columns, d_gamma, d_beta);
  }
  for (; t < rows.end; ++t) {
    norm_parameters_rows<1>(dy, sum, stats, H, t, columns, d_gamma, d_beta);
  }
}

}  // namespace
}  // namespace tilewright::kernels
