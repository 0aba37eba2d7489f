// AdamW, sum of squares, copies and sums of rows.
namespace tilewright::kernels {
namespace {

void add_rows(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
              Range columns, float* grad) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = d_sum + rows[i] * H + columns.begin;
    for_vectors(columns.end - columns.begin, [&](std::int64_t h, std::int64_t n) {
      store_n(grad + h, load_n(grad + h, n) + load_n(row + h, n), n);
    });
  }
}

// Elements between a load and the prefetch of later ones (also beyond the end, because a prefetch
// cannot fault): a page, at whose end hardware prefetchers stop.
constexpr std::int64_t kAhead = 1024;

template <bool kGradient>
void adamw_elements(const AdamW& a, std::int64_t count, const float* gradient, float* parameter,
                    float* m, float* v) {
  const Vec minus_decay = broadcast(0.0f - a.learning_rate * a.weight_decay);  // never -0
  const Vec minus_rate = broadcast(-(a.learning_rate / a.correction1));
  const Vec inverse_root = broadcast(1.0f) / square_root(broadcast(a.correction2));
  const Vec scale = broadcast(a.gradient_scale);
  const Vec one_minus_beta1 = broadcast(1.0f - a.beta1);
  const Vec beta2 = broadcast(a.beta2);
  const Vec one_minus_beta2 = broadcast(1.0f - a.beta2);
  const Vec epsilon = broadcast(a.epsilon);
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    if constexpr (kGradient) prefetch(gradient + i + kAhead);
    prefetch(parameter + i + kAhead);
    prefetch(m + i + kAhead);
    prefetch(v + i + kAhead);
    Vec g = broadcast(0.0f);
    if constexpr (kGradient) g = load_n(gradient + i, n) * scale;
    const Vec p = load_n(parameter + i, n);
    const Vec decayed = mul_add(minus_decay, p, p);
    const Vec old_m = load_n(m + i, n);
    const Vec new_m = mul_add(one_minus_beta1, g - old_m, old_m);
    const Vec new_v = mul_add(one_minus_beta2, g * g, beta2 * load_n(v + i, n));
    const Vec denominator = mul_add(square_root(new_v), inverse_root, epsilon);
    store_n(m + i, new_m, n);
    store_n(v + i, new_v, n);
    store_n(parameter + i, decayed + minus_rate * new_m / denominator, n);
  });
}
void adamw(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
           float* v) {
  gradient == nullptr ? adamw_elements<false>(a, count, gradient, parameter, m, v)
                      : adamw_elements<true>(a, count, gradient, parameter, m, v);
}

// The order equals the reference's (ref/parameters_ref.cpp), so the bits are equal.
double sum_of_squares(const float* x, std::int64_t count) {
  Doubles16 sums;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch(x + i + kAhead);
    sums.add_squares(load(x + i));
  }
  if (i < count) sums.add_squares(load_first(x + i, count - i));
  double partial[16];
  sums.store(partial);
  for (int half = 8; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) partial[k] += partial[k + half];
  }
  return partial[0];
}

void copy(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch(from + i + kAhead);
    store_past_caches(to + i, load(from + i));
  }
  if (i < count) store_first(to + i, load_first(from + i, count - i), count - i);
  end_stores_past_caches();
}

}  // namespace
}  // namespace tilewright::kernels
