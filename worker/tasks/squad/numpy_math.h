// NumPy's float32 arithmetic, rounding by rounding, so that probabilities have the same digits.
#pragma once

#include <span>
#include <vector>

namespace tilewright::tasks::squad {

// np.exp of a float32 that is at most 0, as on CPUs with AVX512F or AVX2 and FMA: a polynomial
// quotient with an error of up to 2.5 units in the last place, not the C library's expf.
float numpy_exp(float x);

// np.sum of contiguous float32 values: pairwise, in blocks of 128 with 8 partial sums.
float numpy_sum(std::span<const float> values);

// np.exp(scores - np.max(scores)) / sum of the same. `scores` is not empty.
std::vector<float> numpy_softmax(std::span<const float> scores);

// np.argsort(values)[-1 : -count - 1 : -1]: the indices of the `count` largest values, descending;
// NaN is larger than any number. Equal values are in the order of a stable argsort reversed, so the
// largest index is first. NumPy's default sort is not stable: its order of equal values depends on
// the CPU.
std::vector<std::size_t> largest_indices(std::span<const float> values, std::size_t count);

}  // namespace tilewright::tasks::squad
