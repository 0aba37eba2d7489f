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

TEST(Arena, MeasuresTheSizeOfARealArena) {
  const auto lay_out = [](Arena& arena) {
    arena.take<float>(100);
    return arena.take<double>(3);
  };
  Arena measure;
  EXPECT_EQ(lay_out(measure), nullptr);
  Arena arena(measure.used());
  const double* last = lay_out(arena);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(last) % 64, 0u);
  EXPECT_EQ(arena.used(), measure.used());
  EXPECT_DEATH(arena.take<float>(1), "arena of 512 bytes: 512 used, 64 requested");
  arena.reset();
  EXPECT_NE(arena.take<float>(1), nullptr);
}

}  // namespace
}  // namespace tilewright::runtime
