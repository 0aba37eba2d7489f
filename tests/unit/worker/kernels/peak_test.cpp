#include "worker/kernels/gemm/peak.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/gemm/peak_operands.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

// Returns the given measurements one after the other.
class Measurements {
 public:
  explicit Measurements(std::vector<double> values) : values_(std::move(values)) {}
  std::function<double()> function() {
    return [this] { return values_.at(count_++); };
  }
  std::size_t count() const { return count_; }

 private:
  std::vector<double> values_;
  std::size_t count_ = 0;
};

TEST(PeakMeter, MeasuresOnceWhileRatesStayBelowThePeak) {
  Measurements measurements({100});
  PeakMeter meter(measurements.function());
  EXPECT_EQ(meter.peak_for(100), 100);
  EXPECT_EQ(meter.peak_for(390, 4), 400);
  EXPECT_EQ(measurements.count(), 1U);
}

TEST(PeakMeter, MeasuresAgainWhenARateExceedsThePeak) {
  Measurements measurements({100, 180});
  PeakMeter meter(measurements.function());
  EXPECT_EQ(meter.peak_for(132), 180);
  EXPECT_EQ(meter.gflops(), 180);
  EXPECT_EQ(meter.peak_for(179), 180);
  EXPECT_EQ(measurements.count(), 2U);
}

TEST(PeakMeter, ReturnsNoPeakBelowTheRate) {
  Measurements measurements({100, 90, 120});
  PeakMeter meter(measurements.function());
  EXPECT_EQ(meter.peak_for(264, 2), 264);
  EXPECT_EQ(meter.gflops(), 132) << "the second measurement was disturbed too";
  EXPECT_EQ(meter.peak_for(280, 2), 280) << "the third measurement is below what was reached";
}

template <typename Element>
void check_operands() {
  std::vector<Element> values(1000);
  fill_peak_operands(values.data(), 1000, 1);
  int positive = 0;
  for (const Element value : values) {
    const float x = runtime::to_float(value);
    ASSERT_GE(std::abs(x), 0.5f);
    ASSERT_LT(std::abs(x), 1.0f);
    positive += x > 0 ? 1 : 0;
  }
  EXPECT_NEAR(positive, 500, 80) << "five standard deviations";
}

TEST(PeakOperands, AreRandomAndNeitherZeroNorInfinite) {
  check_operands<float>();
  check_operands<runtime::bf16>();
}

TEST(PeakOperands, TheEmulatorOfAmxCountsTheOperationsOfFourDotsARound) {
  EXPECT_EQ(kAmxEmulator.peak(3), 3 * 4 * 2 * 16 * 16 * 32);
}

}  // namespace
}  // namespace tilewright::kernels
