// GELU and tanh with dropout.
namespace tilewright::kernels {
namespace {

template <typename Activation>
void gelu_forward(const Activation* x, std::int64_t count, Activation* y) {
  for_vectors(count,
              [&](std::int64_t i, std::int64_t n) { store_n(y + i, gelu(load_n(x + i, n)), n); });
}

template <typename Activation>
void gelu_backward(const Activation* x, const Activation* dy, std::int64_t count, Activation* dx) {
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    store_n(dx + i, load_n(dy + i, n) * gelu_derivative(load_n(x + i, n)), n);
  });
}

template <typename Activation, bool kDropout>
void tanh_dropout_forward_rows(const TanhDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    Activation* activation = a.activation_out + t * a.H;
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      store_n(activation + h, tanh(load_n(a.x + t * a.H + h, n)), n);
      const Vec stored = load_n(activation + h, n);
      store_n(a.out + t * a.H + h, masks.apply<kDropout>(h, stored), n);
    });
  }
}

template <typename Activation, bool kDropout>
void tanh_dropout_backward_rows(const TanhDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for_vectors(a.H, [&](std::int64_t h, std::int64_t n) {
      const Vec y = load_n(a.activation + t * a.H + h, n);
      const Vec d = masks.apply<kDropout>(h, load_n(a.dy + t * a.H + h, n));
      store_n(a.out + t * a.H + h, d * (broadcast(1.0f) - y * y), n);
    });
  }
}

template <typename Activation>
void tanh_dropout_forward(const TanhDropout<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? tanh_dropout_forward_rows<Activation, false>(a, rows)
                           : tanh_dropout_forward_rows<Activation, true>(a, rows);
}
template <typename Activation>
void tanh_dropout_backward(const TanhDropout<Activation>& a, Range rows) {
  a.dropout.threshold == 0 ? tanh_dropout_backward_rows<Activation, false>(a, rows)
                           : tanh_dropout_backward_rows<Activation, true>(a, rows);
}

}  // namespace
}  // namespace tilewright::kernels
