#include "common/host/cgroups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "common/base/strings.h"

namespace tilewright::host {
namespace {

namespace fs = std::filesystem;

// A path in /proc/self/cgroup has at most this many directories here.
constexpr int kMaxDepth = 64;

std::vector<fs::path> with_parents(const fs::path& mount, const fs::path& group) {
  std::vector<fs::path> result;
  fs::path at = group.relative_path();
  for (int depth = 0; !at.empty() && depth < kMaxDepth; ++depth, at = at.parent_path())
    result.push_back(mount / at);
  result.push_back(mount);
  return result;
}

std::optional<double> positive(const std::string& text) {
  const auto value = parse_number<std::int64_t>(text, 1);
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

}  // namespace

CgroupDirectories cgroup_directories(std::string_view controller, const fs::path& root) {
  fs::path v1_group;
  fs::path v2_group;
  const std::string wanted = fmt::format(",{},", controller);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers =
        fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    if (controllers == ",,") v2_group = line.substr(second + 1);
    if (controllers.find(wanted) != std::string::npos) v1_group = line.substr(second + 1);
  }
  const fs::path mounts = root / "sys/fs/cgroup";
  return {with_parents(mounts, v2_group), with_parents(mounts / controller, v1_group)};
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  const auto limit = [&](const std::string& quota, const std::string& period) {
    const auto microseconds = positive(quota);  // "max" and -1: no quota
    const auto length = positive(period);
    if (!microseconds || !length) return;
    const double cpus = *microseconds / *length;
    least = least ? std::min(*least, cpus) : cpus;
  };
  const CgroupDirectories directories = cgroup_directories("cpu", root);
  std::string quota, period;
  for (const fs::path& directory : directories.v2) {
    std::ifstream in(directory / "cpu.max");
    if (in >> quota >> period) limit(quota, period);
  }
  for (const fs::path& directory : directories.v1) {
    std::ifstream in(directory / "cpu.cfs_quota_us");
    std::ifstream length(directory / "cpu.cfs_period_us");
    if (in >> quota && length >> period) limit(quota, period);
  }
  return least;
}

}  // namespace tilewright::host
