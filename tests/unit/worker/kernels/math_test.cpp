// Compares the polynomials with libm in double precision, over every 64th float of a range. This
// file tests the reference's versions, without fused multiply-add; the tests of GELU, tanh and
// attention's log-sum-exp hold the vector versions to the same bounds.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "worker/kernels/vector/vec_scalar.inl"
// After the vector type:
#include "worker/kernels/math/math.inl"

namespace tilewright::kernels {
namespace {

// Largest relative error, in units of 2^-24, over every 64th float of [low, high], 0 < low < high,
// times `sign`.
template <typename Got, typename Want>
double worst_error(float low, float high, float sign, Got got, Want want) {
  double worst = 0;
  for (auto bits = std::bit_cast<std::uint32_t>(low); std::bit_cast<float>(bits) <= high;
       bits += 64) {
    const float x = sign * std::bit_cast<float>(bits);
    const double exact = want(static_cast<double>(x));
    worst = std::max(worst, std::abs(got(x) / exact - 1) * 0x1p24);
  }
  return worst;
}

TEST(Math, ExpIsAccurateToTwoRoundings) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LT(worst_error(0x1p-30f, 87.33f, -1, exp_nonpositive, exact), 2.0);
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive(-88.0f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-1e30f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-INFINITY), 0.0f);
  EXPECT_TRUE(std::isnan(exp_nonpositive(NAN)));
}

TEST(Math, PowersOfTwoAreAccurateToFourRoundingsAndStayNormal) {
  const auto exact = [](double x) { return std::exp2(x); };
  const auto got = [](float x) { return tilewright::kernels::exp2(x); };
  EXPECT_LT(worst_error(0x1p-30f, 126.0f, -1, got, exact), 4.0);
  EXPECT_LT(worst_error(0x1p-30f, 0.5f, 1, got, exact), 4.0);
  EXPECT_EQ(got(0.0f), 1.0f);
  EXPECT_EQ(got(-127.0f), 0x1p-126f);
  EXPECT_EQ(got(-INFINITY), 0x1p-126f);
  EXPECT_TRUE(std::isnan(got(NAN)));
}

TEST(Math, PowersOfTwoForBf16AreAccurateTo18Bits) {
  const auto exact = [](double x) { return std::exp2(x); };
  EXPECT_LT(worst_error(0x1p-30f, 126.0f, -1, exp2_for_bf16, exact), 48.0);
  EXPECT_LT(worst_error(0x1p-30f, 0.5f, 1, exp2_for_bf16, exact), 48.0);
  EXPECT_EQ(exp2_for_bf16(-1000.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_for_bf16(NAN)));
}

TEST(Math, LogIsAccurateToThreeRoundings) {
  const auto exact = [](double x) { return std::log(x); };
  EXPECT_LT(worst_error(1.0000001f, 1e6f, 1, log_of, exact), 3.0);
  EXPECT_LT(worst_error(1e-6f, 0.9999999f, 1, log_of, exact), 3.0);
  EXPECT_EQ(log_of(1.0f), 0.0f);
}

TEST(Math, TanhIsAccurateToThreeRoundings) {
  const auto exact = [](double x) { return std::tanh(x); };
  const auto got = [](float x) { return tilewright::kernels::tanh(x); };
  EXPECT_LT(worst_error(0x1p-30f, 20.0f, 1, got, exact), 3.0);
  EXPECT_LT(worst_error(0x1p-30f, 20.0f, -1, got, exact), 3.0);
}

TEST(Math, NormalDistributionIsAccurateInBothTails) {
  const auto exact = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto cdf = [](float x) { return normal(x).cdf; };
  // Near zero a rounding error of t is amplified 2.7 times (d log r / d log t). Further out the
  // rounding of x^2 / 2 dominates: an error of x^2 / 2 units, 50 at -10.
  EXPECT_LT(worst_error(0x1p-30f, 20.0f, 1, cdf, exact), 8.0);
  EXPECT_LT(worst_error(0x1p-30f, 1.0f, -1, cdf, exact), 8.0);
  EXPECT_LT(worst_error(1.0f, 3.0f, -1, cdf, exact), 10.0);
  EXPECT_LT(worst_error(3.0f, 10.0f, -1, cdf, exact), 60.0);
}

TEST(Math, GeluForBf16IsAccurateToATwelfthOfTheRoundOff) {
  const auto exact = [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  constexpr double kBound = 0x1p24 * 0x1.55p-12;  // 2^-11.6
  EXPECT_LT(worst_error(0x1p-30f, 100.0f, 1, gelu_for_bf16, exact), kBound);
  EXPECT_LT(worst_error(0x1p-30f, 5.5f, -1, gelu_for_bf16, exact), kBound);
  for (int i = 0; i < 4096; ++i) {
    const float x = -5.5f * std::exp(0.0007f * static_cast<float>(i));  // to -97
    EXPECT_NEAR(gelu_for_bf16(x), exact(x), 0x1p-34) << x;
  }
  EXPECT_EQ(gelu_for_bf16(0.0f), 0.0f);
  EXPECT_EQ(gelu_for_bf16(-20.0f), 0.0f);
  EXPECT_EQ(gelu_for_bf16(-3e38f), 0.0f);
  EXPECT_EQ(gelu_for_bf16(3e38f), 3e38f);
  EXPECT_TRUE(std::isnan(gelu_for_bf16(NAN)));
}

TEST(Math, GeluDerivativeForBf16IsAccurateToAFourteenthOfTheRoundOff) {
  for (int i = -10 * 4096; i < 10 * 4096; ++i) {
    const float x = static_cast<float>(i) * 0x1p-12f;
    const double v = x;
    const double exact = 0.5 * std::erfc(-v / std::sqrt(2.0)) +
                         v * std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0));
    ASSERT_NEAR(gelu_derivative_for_bf16(x), exact, 0x1.28p-12) << x;  // 2^-11.8
  }
  EXPECT_EQ(gelu_derivative_for_bf16(0.0f), 0.5f);
  EXPECT_EQ(gelu_derivative_for_bf16(-4.5f), 0.0f);
  EXPECT_EQ(gelu_derivative_for_bf16(-3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(gelu_derivative_for_bf16(NAN)));
}

}  // namespace
}  // namespace tilewright::kernels
