// Packs the operands of attention's products from the activations: widened to fp32, or as pairs of
// bf16 on AVX512-BF16.
namespace tilewright::kernels {
namespace {

// The element type of the products, and the number of activations per element along k.
template <typename Activation>
struct ElementOf {
  using Type = float;
};
#ifdef __AVX512BF16__
template <>
struct ElementOf<bf16> {
  using Type = Pair;
};
#endif
template <typename Activation>
using Element = typename ElementOf<Activation>::Type;
template <typename Activation>
inline constexpr std::int64_t kPerElement = __is_same(Element<Activation>, float) ? 1 : 2;

// Loads n <= kLanes elements of a row from element e. Pairs are loaded as raw bits.
template <typename Activation>
inline Vec load_elements_of(const Activation* row, std::int64_t e, std::int64_t n) {
  if constexpr (kPerElement<Activation> == 2) {
    return load_n(reinterpret_cast<const float*>(row) + e, n);
  } else {
    return load_n(row + e, n);
  }
}

// Whether rows of activations can be read as rows of A without packing.
template <typename Activation>
inline constexpr bool kReadsInPlace = kPerElement<Activation> * sizeof(Activation) ==
                                      sizeof(Element<Activation>);

// Packs A [m, k = D] in row order, D / kPerElement elements per row.
template <typename Activation>
void pack_left(const Activation* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
               Element<Activation>* dst) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const Activation* row = src + i * stride;
    for_vectors(D / kPerElement<Activation>, [&](std::int64_t d, std::int64_t n) {
      store_n(reinterpret_cast<float*>(dst) + i * (D / kPerElement<Activation>)+d,
              load_elements_of(row, d, n), n);
    });
  }
}

// Packs B [k = rows, n = D], pairs of rows; columns beyond D in the last vector are zero.
template <typename Activation>
void pack_rows(const Activation* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
               Panels<Element<Activation>> dst) {
  for (std::int64_t i = 0; i < rows; i += kPerElement<Activation>) {
    const Activation* row = src + i * stride;
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      if constexpr (kPerElement<Activation> == 2) {
        store_pairs(dst.at(i / 2, d), row + d, i + 1 < rows ? row + stride + d : nullptr, n);
      } else {
        store(dst.at(i, d), load_n(row + d, n));
      }
    });
  }
}

// Packs the transpose as B [k = D, n = rows]; columns beyond `rows` in the last vector are zero.
template <typename Activation>
void pack_transposed(const Activation* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
                     Panels<Element<Activation>> dst) {
  const std::int64_t k = D / kPerElement<Activation>;
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    for (std::int64_t e = 0; e < k; e += kLanes) {
      const std::int64_t n = k - e < kLanes ? k - e : kLanes;
      Vec block[kLanes];
      for (int r = 0; r < kLanes; ++r) {
        block[r] = i + r < rows ? load_elements_of(src + (i + r) * stride, e, n) : broadcast(0.0f);
      }
      transpose(block);
      for (int r = 0; r < n; ++r) store(reinterpret_cast<float*>(dst.at(e + r, i)), block[r]);
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels
