// GELU, tanh and ReLU with dropout, and dropout alone.
namespace tilewright::kernels {
namespace {

// Elements between a load and the prefetch of later elements (also beyond the end, because a
// prefetch cannot fault): hardware prefetchers stop at the end of a page, here after 2,048
// elements.
constexpr std::int64_t kPrefetchElements = 2048;

template <typename Activation>
void gelu_forward(const Activation* x, std::int64_t count, Activation* y) {
  constexpr bool kBf16 = std::is_same_v<Activation, bf16>;
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    prefetch(x + i + kPrefetchElements);
    const Vec value = load_n(x + i, n);
    store_n(y + i, kBf16 ? gelu_for_bf16(value) : gelu(value), n);
  });
}

template <typename Activation>
void gelu_backward(const Activation* x, const Activation* dy, std::int64_t count, Activation* dx) {
  constexpr bool kBf16 = std::is_same_v<Activation, bf16>;
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    prefetch(x + i + kPrefetchElements);
    prefetch(dy + i + kPrefetchElements);
    const Vec value = load_n(x + i, n);
    const Vec slope = kBf16 ? gelu_derivative_for_bf16(value) : gelu_derivative(value);
    store_n(dx + i, load_n(dy + i, n) * slope, n);
  });
}

// The activation functions of heads. y is the stored value of the function.
struct Tanh {
  static Vec value(Vec x) { return tanh(x); }
  static Vec times_derivative(Vec d, Vec y) { return d * (broadcast(1.0f) - y * y); }
};
struct Relu {
  static Vec value(Vec x) { return maximum(broadcast(0.0f), x); }
  static Vec times_derivative(Vec d, Vec y) { return select_or_zero(less(broadcast(0.0f), y), d); }
};

template <typename Function, typename Activation, bool kDropout>
void activation_dropout_forward_rows(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    Activation* activation = a.activation_out + t * a.H;
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      store_n(activation + h, Function::value(load_n(a.x + t * a.H + h, n)), n);
      const Vec stored = load_n(activation + h, n);
      store_n(a.out + t * a.H + h, masks.apply<kDropout>(h, stored), n);
    });
  }
}

template <typename Function, typename Activation, bool kDropout>
void activation_dropout_backward_rows(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      const Vec y = load_n(a.activation + t * a.H + h, n);
      const Vec d = masks.apply<kDropout>(h, load_n(a.dy + t * a.H + h, n));
      store_n(a.out + t * a.H + h, Function::times_derivative(d, y), n);
    });
  }
}

template <typename Function, typename Activation>
void activation_dropout_forward(const ActivationDropout<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? activation_dropout_forward_rows<Function, Activation, false>(a, rows)
                           : activation_dropout_forward_rows<Function, Activation, true>(a, rows);
}
template <typename Function, typename Activation>
void activation_dropout_backward(const ActivationDropout<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? activation_dropout_backward_rows<Function, Activation, false>(a, rows)
                           : activation_dropout_backward_rows<Function, Activation, true>(a, rows);
}

template <typename Activation, bool kDropout>
void dropout_forward_rows(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks<> masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      store_n(a.out + t * a.H + h, masks.apply<kDropout>(h, load_n(a.x + t * a.H + h, n)), n);
    });
  }
}
template <typename Activation>
void dropout_forward(const ActivationDropout<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? dropout_forward_rows<Activation, false>(a, rows)
                           : dropout_forward_rows<Activation, true>(a, rows);
}

}  // namespace
}  // namespace tilewright::kernels
