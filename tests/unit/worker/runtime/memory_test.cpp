#include "worker/runtime/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "worker/runtime/thread_pool.h"

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

TEST(TouchPages, MakesAllPagesResidentAndKeepsTheContent) {
  ThreadPool pool(2);
  const Buffer<int> buffer((std::size_t{5} << 20) + 1);  // more than two huge pages
  const auto resident = [&] {
    std::vector<unsigned char> pages((buffer.bytes().size() + 4095) / 4096);
    EXPECT_EQ(mincore(buffer.data(), buffer.bytes().size(), pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  buffer[7] = 42;
  EXPECT_LE(resident(), 512);  // a huge page
  touch_pages(buffer.bytes(), pool);
  EXPECT_EQ(resident(), (static_cast<std::ptrdiff_t>(buffer.bytes().size()) + 4095) / 4096);
  EXPECT_EQ(buffer[7], 42);
  EXPECT_EQ(std::ranges::count(buffer.span(), 0), static_cast<std::ptrdiff_t>(buffer.size()) - 1);
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
