// Records the time of every kernel call of training steps.
//
// ProfiledOps is an Ops whose kernels call those of another one and add their time to a Recorder.
// Layers call it as they call any Ops, so neither the layers nor the kernels depend on profiling,
// and it costs nothing in steps with the other Ops.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"

namespace tilewright::bench {

// What one kernel call computes. Calls with equal rows, k and n share a row of the profile.
struct Work {
  std::int64_t rows = 0;  // of a linear layer, with k and n; otherwise 0
  std::int64_t k = 0;
  std::int64_t n = 0;
  double operations = 0;  // as counted by nn/flops.h; 0: the kernel is bound by memory
  double bytes = 0;       // least number of bytes read and written; 0: not counted
};

// The calls of one kernel and shape, per step.
struct KernelTime {
  std::string kernel;      // "linear dW", "gelu_forward"
  std::string shape = {};  // "4608 x 768 x 3072" (rows x K x N), or empty
  double calls = 0;
  double seconds = 0;  // wall time
  double operations = 0;
  double bytes = 0;
};

class Recorder {
 public:
  using Clock = std::chrono::steady_clock;
  // Returns the number of a kernel. `in_tasks`: the tasks of the thread pool call it, on all
  // threads; otherwise only the thread that runs the step does.
  std::size_t add_kernel(std::string name, bool in_tasks);
  void add(std::size_t kernel, const Work& work, Clock::duration time);

  void clear();  // forgets all calls
  // Means over `steps` steps, in the order of the first calls. The wall time of kernels in tasks is
  // the time of all threads divided by their number.
  std::vector<KernelTime> times(int steps, int threads) const;

 private:
  struct Calls {
    std::size_t kernel = 0;
    Work work;  // of all calls
    std::int64_t count = 0;
    Clock::duration time{};
  };
  // Added up by all threads.
  struct TaskCalls {
    std::atomic<std::int64_t> count = 0;
    std::atomic<std::int64_t> nanoseconds = 0;
    std::atomic<std::int64_t> bytes = 0;
  };
  struct KernelInfo {
    std::string name;
    std::unique_ptr<TaskCalls> tasks;  // null: not called in tasks
  };
  std::vector<KernelInfo> kernels_;
  std::vector<Calls> calls_;
};

template <typename Signature>
struct TimedKernel;

// The Ops of `plain` with timed kernels. Not copied, because its kernels refer to its members.
template <typename Activation>
class ProfiledOps {
 public:
  // `recorder` must outlive the object.
  ProfiledOps(const kernels::Ops<Activation>& plain, const kernels::ParameterOps& plain_parameters,
              Recorder& recorder);
  ProfiledOps(const ProfiledOps&) = delete;
  ProfiledOps& operator=(const ProfiledOps&) = delete;

  const kernels::Ops<Activation>& ops() const { return ops_; }
  const kernels::ParameterOps& parameter_ops() const { return parameter_ops_; }

 private:
  template <typename Signature>
  void time(kernels::Kernel<Signature>& kernel, const char* name,
            typename TimedKernel<Signature>::WorkOf work_of, bool in_tasks = false);

  kernels::Ops<Activation> ops_;
  kernels::ParameterOps parameter_ops_;
  Recorder& recorder_;
  std::vector<std::shared_ptr<const void>> timed_;  // the TimedKernels
};

}  // namespace tilewright::bench
