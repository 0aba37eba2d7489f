#include "worker/runtime/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tilewright::runtime {
namespace {

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
}

TEST(Bf16, KeepsInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bf16(-infinity)), -infinity);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), infinity);
}

TEST(Bf16, RoundTripsEveryValue) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const bf16 x{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    EXPECT_EQ(to_bf16(to_float(x)), x);
  }
}

}  // namespace
}  // namespace tilewright::runtime
