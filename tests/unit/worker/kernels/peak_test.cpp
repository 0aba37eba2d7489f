#include "worker/kernels/gemm/peak.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace tilewright::kernels
