#include "worker/runtime/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tilewright::runtime {
namespace {

TEST(Buffer, IsZeroAtFirstAndAfterClear) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    Buffer<int> buffer(count);
    for (int repetition = 0; repetition < 2; ++repetition) {
      EXPECT_EQ(std::ranges::count(buffer.span(), 0), static_cast<std::ptrdiff_t>(count));
      std::ranges::fill(buffer.span(), 7);
      buffer.clear();
    }
    EXPECT_EQ(std::ranges::count(buffer.span(), 0), static_cast<std::ptrdiff_t>(count));
  }
}

}  // namespace
}  // namespace tilewright::runtime
