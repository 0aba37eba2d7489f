// The NUMA nodes of this machine that the process may use.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tilewright::runtime {

// The CPUs in a list of the kernel: "0-2,8" is 0, 1, 2, 8. Empty if the text is no such list or
// names a CPU above 65535.
std::vector<int> parse_cpu_list(std::string_view text);

// For each NUMA node with CPUs in `allowed`, by number: these CPUs. One entry with all of `allowed`
// if the system does not describe its nodes in `directory`.
std::vector<std::vector<int>> numa_nodes(
    const std::vector<int>& allowed,
    const std::filesystem::path& directory = "/sys/devices/system/node");

// The CPUs in the affinity mask of the calling thread.
std::vector<int> allowed_cpus();

}  // namespace tilewright::runtime
