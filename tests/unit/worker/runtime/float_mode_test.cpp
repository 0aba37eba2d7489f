#include "worker/runtime/float_mode.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <limits>
#include <thread>

#include "worker/runtime/thread_pool.h"

namespace tilewright::runtime {
namespace {

// Whether the calling thread computes with denormal numbers.
bool computes_denormals() {
  volatile float smallest = std::numeric_limits<float>::min();
  const volatile float result = smallest * 0.5f;  // denormal
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  const volatile float sum = denormal * 1e10f;  // normal
  return result != 0 || sum != 0;
}

TEST(FloatMode, FlushesDenormalsOfTheCallingThreadOnly) {
  bool before = false, flushed = true, kept = false;
  std::thread([&] {
    std::fesetenv(FE_DFL_ENV);  // a thread begins in the mode of its creator
    before = computes_denormals();
    std::thread([&] {
      flush_denormals();
      flushed = computes_denormals();
    }).join();
    kept = computes_denormals();
  }).join();
  EXPECT_TRUE(before);
  EXPECT_FALSE(flushed);
  EXPECT_TRUE(kept);
}

TEST(FloatMode, ComputesWithDenormalsInAScope) {
  bool within = false, after = true;
  std::thread([&] {
    flush_denormals();
    {
      const DenormalsScope scope;
      within = computes_denormals();
    }
    after = computes_denormals();
  }).join();
  EXPECT_TRUE(within);
  EXPECT_FALSE(after);
}

TEST(FloatMode, FlushesDenormalsOnEveryThreadOfAPool) {
  std::thread([] {
    std::fesetenv(FE_DFL_ENV);
    ThreadPool pool(4);
    std::atomic<int> denormals = 0, arrived = 0;
    pool.run(4, [&](std::int64_t, int) {
      if (computes_denormals()) ++denormals;
      // Waits for the others, so that each thread runs one task.
      ++arrived;
      while (arrived < 4) std::this_thread::yield();
    });
    EXPECT_EQ(denormals, 0);
    EXPECT_FALSE(computes_denormals()) << "on the thread that made the pool";
  }).join();
}

}  // namespace
}  // namespace tilewright::runtime
