#include "worker/runtime/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tilewright::runtime {
namespace {

template <typename Check>
void with_and_without_pool(const Check& check) {
  check(nullptr);
  std::thread([&] {  // a pool changes the floating-point mode of its thread
    ThreadPool pool(3);
    check(&pool);
  })
      .join();
}

TEST(ForEachIndex, CallsTheBodyOncePerIndex) {
  with_and_without_pool([](ThreadPool* pool) {
    std::vector<int> calls(100);
    for_each_index(pool, 100, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(calls, std::vector<int>(100, 1));
  });
}

TEST(ForEachIndex, ThrowsTheExceptionOfTheLowestIndex) {
  with_and_without_pool([](ThreadPool* pool) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      try {
        for_each_index(pool, 100, [](std::int64_t i) {
          if (i % 10 == 3) throw std::runtime_error(std::to_string(i));
        });
        ADD_FAILURE() << "not thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "3");
      }
    }
  });
}

}  // namespace
}  // namespace tilewright::runtime
