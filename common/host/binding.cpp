#include "common/host/binding.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "common/base/check.h"
#include "common/host/cpu_list.h"

namespace tilewright::host {
namespace {

constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

BitMask::BitMask(const std::vector<int>& numbers)
    : words_(static_cast<std::size_t>(kMaxCpu / kWordBits + 1)) {
  for (const int number : numbers) {
    TW_CHECK(number >= 0 && number <= kMaxCpu, "CPU or node {}", number);
    words_[static_cast<std::size_t>(number / kWordBits)] |= 1UL << number % kWordBits;
  }
}

std::vector<int> BitMask::numbers() const {
  std::vector<int> result;
  for (int number = 0; number <= kMaxCpu; ++number)
    if ((words_[static_cast<std::size_t>(number / kWordBits)] >> number % kWordBits & 1UL) != 0)
      result.push_back(number);
  return result;
}

// The system calls instead of glibc's functions, whose cpu_set_t ends at CPU 1023.
std::vector<int> thread_affinity() {
  BitMask mask;
  if (syscall(SYS_sched_getaffinity, 0, mask.bytes(), mask.data()) < 0) return {};
  return mask.numbers();
}

Status bind_thread(const std::vector<int>& cpus) {
  const BitMask mask(cpus);
  if (syscall(SYS_sched_setaffinity, 0, mask.bytes(), mask.data()) == 0) return {};
  return Error{ExitCode::kInternal, fmt::format("cannot bind a thread to the CPUs {}: {}",
                                                format_cpu_list(cpus), std::strerror(errno))};
}

bool prefer_memory(const std::vector<int>& nodes) {
  int current = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &current, nullptr, 0, nullptr, 0) != 0 || current != MPOL_DEFAULT)
    return false;
  const BitMask mask(nodes);
  const int policy = nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  // The kernel reads one bit less than the count says. It refuses bits beyond its largest node
  // number only if they are set.
  return syscall(SYS_set_mempolicy, policy, mask.data(), kMaxCpu + 1 + 1) == 0;
}

void bind_process(const ProcessPlan& plan) {
  if (const Status bound = bind_thread(plan.cpus); !bound) return;
  if (!plan.memory_nodes.empty()) prefer_memory(plan.memory_nodes);
}

}  // namespace tilewright::host
