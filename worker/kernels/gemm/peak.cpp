#include "worker/kernels/gemm/peak.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "common/base/clock.h"
#include "worker/kernels/isa_table.h"

namespace tilewright::kernels {

double measure_peak_gflops(Isa isa, runtime::Precision precision, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kRounds = 100'000;  // 0.2 to 2 ms
  constexpr auto kMinTime = std::chrono::milliseconds(15);
  constexpr int kMinSlices = 8;  // another process may run for longer than kMinTime in one of them
  const IsaRow& row = isa_row(isa);
  const auto peak = precision == runtime::Precision::kBf16 ? row.gemm_bf16.engine->peak
                                                           : row.gemm_fp32.engine->peak;
  std::mutex mutex;
  double total = 0;
  pool.run(pool.size(), [&](std::int64_t, int) {
    double best = 0;
    const auto begin = Clock::now();
    auto now = begin;
    for (int slices = 0; slices < kMinSlices || now - begin < kMinTime; ++slices) {
      const double operations = peak(kRounds);
      const auto end = Clock::now();
      best = std::max(best, operations / in_seconds(end - now));
      now = end;
    }
    const std::lock_guard lock(mutex);
    total += best;
  });
  return total * 1e-9;
}

PeakMeter::PeakMeter(std::function<double()> measure)
    : measure_(std::move(measure)), gflops_(measure_()) {}

PeakMeter::PeakMeter(Isa isa, runtime::Precision precision, ThreadPool& pool)
    : PeakMeter([=, &pool] { return measure_peak_gflops(isa, precision, pool); }) {}

double PeakMeter::peak_for(double achieved, int processes) {
  const double each = achieved / processes;
  if (each > gflops_) gflops_ = std::max({gflops_, measure_(), each});
  return gflops_ * processes;
}

}  // namespace tilewright::kernels
