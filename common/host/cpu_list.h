// Lists of CPUs and NUMA nodes in the kernel's format: "0-2,8" is 0, 1, 2, 8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright::host {

// The largest number in a list. Linux supports at most 8192 CPUs on x86 (CONFIG_NR_CPUS).
inline constexpr int kMaxCpu = 8191;

// Empty if the text is no such list, is not ascending or has a number above kMaxCpu.
std::vector<int> parse_cpu_list(std::string_view text);

// `cpus` in ascending order.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace tilewright::host
