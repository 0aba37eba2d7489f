// Tests that every kernel that stores bf16 rounds as runtime::to_bf16, the scalar definition.
#include <bit>

#include "tests/unit/worker/kernels/gemm_support.h"

namespace tilewright::kernels::testing {
namespace {

// Floats of both signs over all exponents, including subnormals, infinities and NaN: values with
// zero low bits, ties and the neighbours of ties.
std::vector<float> rounding_inputs() {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1u << 19) {
    for (const std::uint32_t low : {0u, 0x7fffu, 0x8000u, 0x8001u, 0x18000u, 0x1ffffu}) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) + low));
    }
  }
  values.resize(values.size() / 64 * 64);
  return values;
}

// `x` must be to_bf16(value), or, if `flushes`, a zero of the same sign for a subnormal value.
void expect_rounded(bf16 x, float value, bool flushes) {
  if (flushes && std::abs(value) < 0x1p-126f) value = std::copysign(0.0f, value);
  EXPECT_EQ(x.bits, runtime::to_bf16(value).bits)
      << std::hex << std::bit_cast<std::uint32_t>(value);
}

bool flushes_subnormals(std::optional<Isa> isa) { return !isa || *isa >= Isa::kAvx512Bf16; }

using Bf16Rounding = GemmTest;
INSTANTIATE_TEST_SUITE_P(Isas, Bf16Rounding, ::testing::ValuesIn([] {
                           std::vector<GemmCase> cases = gemm_cases();
                           std::erase_if(cases, [](const GemmCase& one) { return !one.is_bf16; });
                           return cases;
                         }()),
                         gemm_case_name);

// With x = 0 the output of a linear layer is its bias, rounded.
TEST_P(Bf16Rounding, OfLinearOutputsEqualsTheScalarDefinition) {
  ThreadPool pool(1);
  const std::vector<float> bias = rounding_inputs();
  for (const std::size_t n : {bias.size(), bias.size() - 5}) {
    with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
      if constexpr (std::is_same_v<Activation, bf16>) {
        const Weight<bf16> weight(ops, static_cast<std::int64_t>(n), 1, 1);
        const auto y = forward(ops, pool, weight, std::vector<bf16>(1), bias.data(), 1);
        for (std::size_t i = 0; i < n; ++i) {
          expect_rounded(y[i], bias[i] + 0.0f, flushes_subnormals(GetParam().isa));
        }
      }
    });
  }
}

// Without padding a packed weight contains the elements of the weight in another order.
TEST_P(Bf16Rounding, OfPackedWeightsEqualsTheScalarDefinition) {
  const std::vector<float> values = rounding_inputs();
  const std::int64_t k = 64;
  const auto n = static_cast<std::int64_t>(values.size()) / k / 64 * 64;
  std::vector<std::uint16_t> want;
  for (std::int64_t i = 0; i < n * k; ++i) want.push_back(runtime::to_bf16(values[i]).bits);
  std::sort(want.begin(), want.end());
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    if constexpr (std::is_same_v<Activation, bf16>) {
      ASSERT_EQ(ops.packed_weight_size(n, k), want.size());
      std::vector<bf16> forward(want.size()), backward(want.size());
      ops.pack_weight(values.data(), n, k, 0, n, forward.data(), backward.data());
      for (const auto& packed : {forward, backward}) {
        std::vector<std::uint16_t> got;
        got.reserve(packed.size());
        for (const bf16 x : packed) got.push_back(x.bits);
        std::sort(got.begin(), got.end());
        EXPECT_EQ(got, want);
      }
    }
  });
}

using Bf16RoundingOfVectorKernels = IsaTest;
INSTANTIATE_TEST_SUITE_P(Isas, Bf16RoundingOfVectorKernels, ::testing::ValuesIn(runtime::kAllIsas),
                         isa_name);

// With gamma = 0 the output of a layer norm is beta, rounded; y32 holds it before rounding.
TEST_P(Bf16RoundingOfVectorKernels, EqualsTheScalarDefinition) {
  ThreadPool pool(1);
  const std::vector<float> all = rounding_inputs();
  const Ops<bf16> ops = make_ops<bf16>(GetParam());
  for (std::size_t begin = 0; begin < all.size(); begin += 8189) {
    const std::size_t width = std::min<std::size_t>(8189, all.size() - begin);
    const std::vector<float> beta(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                  all.begin() + static_cast<std::ptrdiff_t>(begin + width));
    const std::vector<float> gamma(width);
    const auto word = random_vector<float>(width, 1);
    const std::int32_t zero = 0;
    std::vector<float> sum(width), stats(2), y32(width);
    std::vector<bf16> y(width);
    ops.embed_norm_forward(pool, &zero, &zero, nullptr, word.data(), word.data(), nullptr, 1,
                           static_cast<std::int64_t>(width), {gamma.data(), beta.data(), 1e-12f},
                           {}, {}, sum.data(), stats.data(), y32.data(), y.data());
    for (std::size_t i = 0; i < width; ++i) {
      expect_rounded(y[i], y32[i], flushes_subnormals(GetParam()));
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels::testing
