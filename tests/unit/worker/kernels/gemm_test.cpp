// Compares the linear layers with a double-precision reference, on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/kernels/gemm_support.h"
#include "tests/unit/worker/lengths.h"

namespace tilewright::kernels::testing {
namespace {

using runtime::from_float;
using runtime::to_float;

struct ProductShape {
  std::int64_t rows, k, n;
};
// Sizes that are no multiples of a block; then all covered numbers of rows.
std::vector<ProductShape> shapes() {
  std::vector<ProductShape> all = {{1, 1, 1},    {1, 30, 2},    {5, 30, 3},    {17, 33, 31},
                                   {64, 64, 64}, {47, 96, 130}, {29, 131, 77}, {3, 770, 100},
                                   {9, 96, 160}, {31, 2048, 40}};
  for (const std::int32_t rows : tilewright::testing::covered_lengths()) {
    all.push_back({rows, 36, 20});
  }
  return all;
}

template <typename Activation>
float rounded(float x) {
  return to_float(from_float<Activation>(x));
}

// Bound on |computed - exact| of a sum of `terms` products: every partial sum is at most
// `magnitude` (the sum of the products' magnitudes) and is rounded once per product and once per
// addition (unit round-off 2^-24); then the result is rounded to Activation (unit round-off 2^-8
// for bf16).
template <typename Activation>
double tolerance(std::int64_t terms, double magnitude, double exact) {
  const double sums = 2.0 * static_cast<double>(terms + 2) * magnitude * std::ldexp(1.0, -24);
  return sums + (sizeof(Activation) == 2 ? std::abs(exact) * std::ldexp(1.0, -8) : 0.0) + 1e-30;
}

using Linear = GemmTest;
INSTANTIATE_TEST_SUITE_P(Isas, Linear, ::testing::ValuesIn(gemm_cases()), gemm_case_name);

TEST_P(Linear, ForwardIsXTimesTheTransposedWeightPlusBias) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    ThreadPool pool(2);
    for (const auto& [rows, k, n] : shapes()) {
      SCOPED_TRACE(::testing::Message() << rows << "x" << k << "x" << n);
      const Weight<Activation> weight(ops, n, k, 1);
      const auto x = random_values<Activation>(static_cast<std::size_t>(rows * k), 2);
      const auto bias = random_values<float>(static_cast<std::size_t>(n), 3);
      for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
        const auto y = forward(ops, pool, weight, x, b, rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < n; ++c) {
            double exact = b != nullptr ? b[c] : 0.0;
            double magnitude = std::abs(exact);
            for (std::int64_t i = 0; i < k; ++i) {
              const double term =
                  double{to_float(x[static_cast<std::size_t>(r * k + i)])} *
                  rounded<Activation>(weight.w[static_cast<std::size_t>(c * k + i)]);
              exact += term;
              magnitude += std::abs(term);
            }
            ASSERT_NEAR(to_float(y[static_cast<std::size_t>(r * n + c)]), exact,
                        tolerance<Activation>(k, magnitude, exact))
                << "row " << r << " column " << c;
          }
        }
      }
    }
  });
}

// A single running sum of 4,096 products has some six times the error of 64 sums of 64 products.
TEST_P(Linear, ForwardOfManyFloatsIsMoreExactThanOneRunningSum) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    if constexpr (sizeof(Activation) == sizeof(float)) {
      constexpr std::int64_t kRows = 9, kTerms = 4096, kColumns = 40;
      ThreadPool pool(1);
      const Weight<float> weight(ops, kColumns, kTerms, 1);
      const auto x = random_values<float>(kRows * kTerms, 2);
      const auto y = forward(ops, pool, weight, x, nullptr, kRows);
      double squares = 0, squares_of_one_sum = 0;
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t c = 0; c < kColumns; ++c) {
          double exact = 0;
          float one_sum = 0;
          for (std::int64_t i = 0; i < kTerms; ++i) {
            const float a = x[static_cast<std::size_t>(r * kTerms + i)];
            const float b = weight.w[static_cast<std::size_t>(c * kTerms + i)];
            exact += double{a} * b;
            one_sum = std::fma(a, b, one_sum);
          }
          squares += std::pow(y[static_cast<std::size_t>(r * kColumns + c)] - exact, 2);
          squares_of_one_sum += std::pow(one_sum - exact, 2);
        }
      }
      EXPECT_LT(std::sqrt(squares), std::sqrt(squares_of_one_sum) / 3);
    }
  });
}

TEST_P(Linear, InputGradientIsDyTimesTheWeight) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    ThreadPool pool(2);
    for (const auto& [rows, k, n] : shapes()) {
      SCOPED_TRACE(::testing::Message() << rows << "x" << k << "x" << n);
      const Weight<Activation> weight(ops, n, k, 1);
      const auto dy = random_values<Activation>(static_cast<std::size_t>(rows * n), 2);
      const auto dx = backward_input(ops, pool, weight, dy, rows);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < k; ++c) {
          double exact = 0;
          double magnitude = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const double term = double{to_float(dy[static_cast<std::size_t>(r * n + i)])} *
                                rounded<Activation>(weight.w[static_cast<std::size_t>(i * k + c)]);
            exact += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(to_float(dx[static_cast<std::size_t>(r * k + c)]), exact,
                      tolerance<Activation>(n, magnitude, exact))
              << "row " << r << " column " << c;
        }
      }
    }
  });
}

TEST_P(Linear, WeightGradientIsTheTransposedDyTimesXSummedOverTokens) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    ThreadPool pool(2);
    for (const auto& [rows, k, n] : shapes()) {
      SCOPED_TRACE(::testing::Message() << rows << "x" << k << "x" << n);
      const auto x = random_values<Activation>(static_cast<std::size_t>(rows * k), 1);
      const auto dy = random_values<Activation>(static_cast<std::size_t>(rows * n), 2);
      const std::int32_t end = static_cast<std::int32_t>(rows);
      const std::vector<std::int32_t> shards = {0, end / 3, end / 3, end / 2, end};
      const Gradients g = backward_weight(ops, pool, x, dy, shards, k, n);
      for (std::int64_t r = 0; r < n; ++r) {
        double bias = 0;
        double bias_magnitude = 0;
        for (std::int64_t t = 0; t < rows; ++t) {
          const double value = to_float(dy[static_cast<std::size_t>(t * n + r)]);
          bias += value;
          bias_magnitude += std::abs(value);
        }
        ASSERT_NEAR(g.dbias[static_cast<std::size_t>(r)], bias,
                    tolerance<float>(rows, bias_magnitude, bias));
        for (std::int64_t c = 0; c < k; ++c) {
          double exact = 0;
          double magnitude = 0;
          for (std::int64_t t = 0; t < rows; ++t) {
            const double term = double{to_float(dy[static_cast<std::size_t>(t * n + r)])} *
                                to_float(x[static_cast<std::size_t>(t * k + c)]);
            exact += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(g.dw[static_cast<std::size_t>(r * k + c)], exact,
                      tolerance<float>(rows, magnitude, exact))
              << "row " << r << " column " << c;
        }
      }
    }
  });
}

TEST_P(Linear, PackingInRangesGivesTheSameWeight) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    for (const auto& [n, k] : {std::pair{200, 70}, {64, 33}, {3, 30}, {129, 64}, {192, 96}}) {
      SCOPED_TRACE(::testing::Message() << n << "x" << k);
      Weight<Activation> weight(ops, n, k, 1);
      const std::size_t size = weight.forward.size();
      const std::vector<Activation> forward_once(weight.forward.data(),
                                                 weight.forward.data() + size);
      const std::vector<Activation> backward_once(weight.backward.data(),
                                                  weight.backward.data() + size);
      std::memset(static_cast<void*>(weight.forward.data()), 0x7f, size * sizeof(Activation));
      std::memset(static_cast<void*>(weight.backward.data()), 0x7f, size * sizeof(Activation));
      for (std::int64_t begin = (n - 1) / 64 * 64; begin >= 0; begin -= 64) {
        ops.pack_weight(weight.w.data(), n, k, begin, std::min<std::int64_t>(begin + 64, n),
                        weight.forward.data(), weight.backward.data());
      }
      EXPECT_TRUE(same_bits(forward_once, std::vector<Activation>(weight.forward.data(),
                                                                  weight.forward.data() + size)));
      EXPECT_TRUE(same_bits(backward_once, std::vector<Activation>(weight.backward.data(),
                                                                   weight.backward.data() + size)));
    }
  });
}

}  // namespace
}  // namespace tilewright::kernels::testing
