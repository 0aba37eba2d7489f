#include "worker/kernels/gemm/peak.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels {
namespace {

using Peak = double (*)(std::int64_t rounds);

// As the plain loops of the reference: multiply, then add, on what a compiler makes of it.
double plain_peak(std::int64_t rounds) {
  constexpr int kWidth = 32;
  float sums[kWidth] = {};
  float factors[kWidth] = {};
  asm volatile("" : : "r"(factors) : "memory");
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (int c = 0; c < kWidth; ++c) sums[c] += factors[c] * factors[0];
  }
  asm volatile("" : : "r"(sums) : "memory");
  return static_cast<double>(rounds) * 2 * kWidth;
}

Peak peak_of(Isa isa, bool bf16) {
  switch (isa) {
    case Isa::kRef:
      return plain_peak;
    case Isa::kAvx2:
      return bf16 ? kAvx2Bf16.peak : kAvx2Float.peak;
    case Isa::kAvx512:
      return bf16 ? kAvx512Widened.peak : kAvx512Float.peak;
    case Isa::kAvx512Bf16:
      return bf16 ? kAvx512Bf16.peak : kAvx512Float.peak;
    case Isa::kAmx:
      return bf16 ? kAmx.peak : kAvx512Float.peak;
  }
  return plain_peak;
}

}  // namespace

double measure_peak_gflops(Isa isa, bool bf16, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kRounds = 100'000;  // 0.2 to 2 ms
  constexpr auto kTime = std::chrono::milliseconds(50);
  const Peak peak = peak_of(isa, bf16);
  std::mutex mutex;
  double total = 0;
  pool.run(pool.size(), [&](std::int64_t, int) {
    double best = 0;
    const auto begin = Clock::now();
    for (auto now = begin; now - begin < kTime;) {
      const double operations = peak(kRounds);
      const auto end = Clock::now();
      best = std::max(best, operations / std::chrono::duration<double>(end - now).count());
      now = end;
    }
    const std::lock_guard lock(mutex);
    total += best;
  });
  return total * 1e-9;
}

}  // namespace tilewright::kernels
