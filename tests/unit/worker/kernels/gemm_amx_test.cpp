// Compares the AMX emulator with the manual's description and with the hardware.
#include <gtest/gtest.h>

#include "tests/unit/worker/kernels/gemm_support.h"
#include "worker/kernels/gemm/amx_emulator.h"
#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels::testing {
namespace {

using runtime::to_bf16;

// One dot product: the left operand's pairs along k are (even[k], odd[k]), each right element is
// `right`.
float dot(const std::vector<float>& even, const std::vector<float>& odd, float start,
          float right = 1.0f) {
  bf16 a[16][32] = {};
  bf16 b[16][32] = {};
  float c[16][16] = {};
  for (std::size_t k = 0; k < even.size(); ++k) {
    a[3][2 * k] = to_bf16(even[k]);
    a[3][2 * k + 1] = to_bf16(odd[k]);
    b[k][2 * 5] = to_bf16(right);
    b[k][2 * 5 + 1] = to_bf16(right);
  }
  c[3][5] = start;
  AmxEmulator tiles;
  tiles.load<0>(c, 64);
  tiles.load<1>(a, 64);
  tiles.load<2>(b, 64);
  tiles.dot<0, 1, 2>();
  tiles.store<0>(c, 64);
  return c[3][5];
}

TEST(AmxEmulator, AddsTheSumOfADotProductToTheAccumulatorOnce) {
  // Floats near 2^24 are 2 apart: each 0.5 added separately would be lost to rounding.
  EXPECT_EQ(dot(std::vector<float>(16, 0.5f), std::vector<float>(16, 0.5f), 0x1p24f), 0x1p24f + 16);
}

TEST(AmxEmulator, SumsEvenAndOddElementsSeparately) {
  // Even: 2^24 + 1 rounds to 2^24. Odd: 1. A single sum would lose both ones.
  EXPECT_EQ(dot({0x1p24f, 1.0f, -0x1p24f}, {1.0f, 0.0f, 0.0f}, 0.0f), 1.0f);
  EXPECT_EQ(dot({0x1p24f, 1.0f}, {-0x1p24f, 1.0f}, 0.0f), 1.0f);
}

TEST(AmxEmulator, TakesSubnormalInputsAsZeroAndFlushesSubnormalResults) {
  EXPECT_EQ(dot({0x1p-130f}, {0.0f}, 0.0f, 0x1p100f), 0.0f);
  EXPECT_EQ(dot({0x1p-100f}, {0.0f}, 0.0f, 0x1p-30f), 0.0f);
  EXPECT_EQ(dot({0x1p-100f}, {0.0f}, 0.0f, 0x1p-26f), 0x1p-126f);
}

TEST(AmxEmulator, RoundsToNearestEven) {
  EXPECT_EQ(dot({1.0f}, {0.0f}, 0x1p24f), 0x1p24f);
  EXPECT_EQ(dot({3.0f}, {0.0f}, 0x1p24f), 0x1p24f + 4);
}

// The AMX packers are AVX-512 code, so they run on CPUs without tiles too.
TEST(Amx, PacksLikeTheEmulator) {
  if (!cpu_supports(Isa::kAvx512Bf16)) GTEST_SKIP() << "this CPU has no avx512_bf16";
  for (const auto& [n, k] : {std::pair{64, 96}, {97, 70}, {192, 32}, {3, 33}}) {
    const auto w = random_values<float>(static_cast<std::size_t>(n * k), 1);
    const std::size_t size = kernels_of_emulated_amx().ops.packed_weight_size(n, k);
    std::vector<bf16> forward(size), backward(size), forward_emulated(size),
        backward_emulated(size);
    kAmx.pack_weight(w.data(), n, k, 0, n, forward.data(), backward.data());
    kAmxEmulator.pack_weight(w.data(), n, k, 0, n, forward_emulated.data(),
                             backward_emulated.data());
    EXPECT_TRUE(same_bits(forward, forward_emulated)) << n << "x" << k;
    EXPECT_TRUE(same_bits(backward, backward_emulated)) << n << "x" << k;
  }
  const std::int64_t columns = 130;
  for (const std::int64_t tokens : {1, 31, 32, 33, 65, 128}) {
    const auto in = random_values<bf16>(static_cast<std::size_t>(tokens * columns), 2);
    const std::int64_t stride = 128 * 32 + kPanelPadding;
    for (const auto pack : {&Engine<bf16>::pack_dy, &Engine<bf16>::pack_x}) {
      std::vector<bf16> out(static_cast<std::size_t>(5 * stride));
      std::vector<bf16> out_emulated = out;
      (kAmx.*pack)(in.data(), columns, tokens, columns, out.data(), stride);
      (kAmxEmulator.*pack)(in.data(), columns, tokens, columns, out_emulated.data(), stride);
      EXPECT_TRUE(same_bits(out, out_emulated)) << tokens << " tokens";
    }
  }
}

TEST(Amx, MatchesTheEmulatorBitForBit) {
  if (!cpu_supports(Isa::kAmx)) GTEST_SKIP() << "this CPU has no amx";
  ThreadPool pool(2);
  const auto x = random_values<bf16>(211 * 70, 1);
  const auto dy = random_values<bf16>(211 * 97, 2);
  const std::vector<std::int32_t> shards = {0, 33, 33, 64, 211};
  const auto run = [&](const Ops<bf16>& ops) {
    const Weight<bf16> weight(ops, 97, 70, 3);
    return std::tuple(forward(ops, pool, weight, x, nullptr, 211),
                      backward_input(ops, pool, weight, dy, 211),
                      backward_weight(ops, pool, x, dy, shards, 70, 97));
  };
  const auto [y, dx, g] = run(make_ops<bf16>(Isa::kAmx));
  const auto [y_emulated, dx_emulated, g_emulated] = run(kernels_of_emulated_amx().ops);
  EXPECT_TRUE(same_bits(y, y_emulated));
  EXPECT_TRUE(same_bits(dx, dx_emulated));
  EXPECT_TRUE(same_bits(g.dw, g_emulated.dw));
  EXPECT_TRUE(same_bits(g.dbias, g_emulated.dbias));
}

}  // namespace
}  // namespace tilewright::kernels::testing
