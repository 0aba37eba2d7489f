// Measures this CPU's peak: the rate of its multiply-add units on operands that stay in registers.
#pragma once

#include <functional>

#include "worker/kernels/ops.h"
#include "worker/runtime/precision.h"

namespace tilewright::kernels {

// Returns the GFLOP/s of all threads of the pool together, with the instructions that the linear
// layers use on `isa` for activations of this precision. Takes about 15 ms, at least eight slices,
// and counts each thread's best slice of 0.2 to 2 ms, which reduces the effect of other processes
// on the same cores.
double measure_peak_gflops(Isa isa, runtime::Precision precision, ThreadPool& pool);

// The largest peak seen: a measurement on a busy CPU is too low.
class PeakMeter {
 public:
  // `measure` returns GFLOP/s and is called at once.
  explicit PeakMeter(std::function<double()> measure);
  PeakMeter(Isa isa, runtime::Precision precision, ThreadPool& pool);

  double gflops() const { return gflops_; }

  // The peak of `processes` processes like this one, which reached `achieved` GFLOP/s together. If
  // that exceeds the known peak, measures again; if it still does, the achieved rate is the best
  // known peak. So achieved / peak_for(achieved) is at most 1.
  double peak_for(double achieved, int processes = 1);

 private:
  std::function<double()> measure_;
  double gflops_;
};

}  // namespace tilewright::kernels
