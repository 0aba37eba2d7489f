// Binds threads to CPUs and memory to NUMA nodes.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/host/cpu_plan.h"

namespace tilewright::host {

// Bits of CPU or node numbers, as the kernel's system calls take them.
class BitMask {
 public:
  // Of the numbers 0 to kMaxCpu.
  explicit BitMask(const std::vector<int>& numbers = {});
  std::vector<int> numbers() const;
  unsigned long* data() { return words_.data(); }
  const unsigned long* data() const { return words_.data(); }
  std::size_t bytes() const { return words_.size() * sizeof(unsigned long); }

 private:
  std::vector<unsigned long> words_;
};

// The affinity mask of the calling thread; empty if the system does not tell it.
std::vector<int> thread_affinity();

// Sets the affinity mask of the calling thread; threads that it starts inherit the mask.
Status bind_thread(const std::vector<int>& cpus);

// The calling thread, and threads that it starts, allocate memory on these nodes: on the only one
// as long as it has free memory, on several in turns. Keeps a policy that the starter of the
// process has set (numactl). Returns whether the kernel accepted it; container runtimes forbid the
// call, and memory is then on the node of the thread that writes to it first.
bool prefer_memory(const std::vector<int>& nodes);

// Binds the calling thread to the CPUs and the memory of the plan. To be called before threads are
// started and large blocks are allocated. Ignores what the kernel refuses: the process then runs
// unbound.
void bind_process(const ProcessPlan& plan);

}  // namespace tilewright::host
