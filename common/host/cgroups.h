// The cgroups of this process and the CPU quota that they set.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace tilewright::host {

// Directories of the process's cgroup and all its parents, the process's own first. In a container
// /proc/self/cgroup may show the host's path, which is not mounted; the mounted root, the last
// entry, then holds the limits. A directory in the result need not exist.
struct CgroupDirectories {
  std::vector<std::filesystem::path> v2;
  std::vector<std::filesystem::path> v1;  // of the controller's hierarchy
};

// `controller`: "cpu" or "memory". `root` replaces / in the paths of /proc and /sys, for tests.
CgroupDirectories cgroup_directories(std::string_view controller,
                                     const std::filesystem::path& root = "/");

// The smallest quota of these cgroups (cpu.max; cpu.cfs_quota_us in v1) in CPUs; nullopt if none
// has one.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace tilewright::host
