// Operands of attention's products, taken out of the packed rows of the activations: widened to
// fp32, or as pairs of bf16 where the instruction set multiplies those.
namespace tilewright::kernels {
namespace {

// The element of the products for activations T, and how many numbers it holds along k.
template <typename T>
struct ElementOf {
  using Type = float;
};
#ifdef __AVX512BF16__
template <>
struct ElementOf<bf16> {
  using Type = Pair;
};
#endif
template <typename T>
using Element = typename ElementOf<T>::Type;
template <typename T>
inline constexpr std::int64_t kPerElement = __is_same(Element<T>, float) ? 1 : 2;

inline std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// n <= kLanes elements of a row from element e, pairs as the bits they are.
template <typename T>
inline Vec load_elements_of(const T* row, std::int64_t e, std::int64_t n) {
  if constexpr (kPerElement<T> == 2) {
    return load_n(reinterpret_cast<const float*>(row) + e, n);
  } else {
    return load_n(row + e, n);
  }
}

// A [m, k = D]: rows as they stand. dst rows are D / kPerElement elements long.
template <typename T>
void pack_left(const T* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
               Element<T>* dst) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = src + i * stride;
    for_vectors(D / kPerElement<T>, [&](std::int64_t d, std::int64_t n) {
      store_n(reinterpret_cast<float*>(dst) + i * (D / kPerElement<T>)+d,
              load_elements_of(row, d, n), n);
    });
  }
}

// B [k = rows, n = D]: pairs of rows; zero in the last vector's columns beyond D.
template <typename T>
void pack_rows(const T* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
               Panels<Element<T>> dst) {
  for (std::int64_t i = 0; i < rows; i += kPerElement<T>) {
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      const Vec first = load_n(src + i * stride + d, n);
      if constexpr (kPerElement<T> == 2) {
        const Vec second = i + 1 < rows ? load_n(src + (i + 1) * stride + d, n) : broadcast(0.0f);
        store_pairs(dst.at(i / 2, d), first, second);
      } else {
        store(dst.at(i, d), first);
      }
    });
  }
}

// B [k = D, n = rows]: the transpose; zero in the last vector's columns beyond `rows`.
template <typename T>
void pack_transposed(const T* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
                     Panels<Element<T>> dst) {
  const std::int64_t k = D / kPerElement<T>;
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
