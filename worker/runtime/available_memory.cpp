// How much memory a process may still use, and with whom it shares that: the machine, its cgroups;
// its address space is its own.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "worker/runtime/memory.h"

namespace tilewright::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = UINT64_MAX;

std::uint64_t left(std::uint64_t limit, std::uint64_t used) {
  if (limit == kNoLimit) return kNoLimit;
  return limit > used ? limit - used : 0;
}

// The first number of a file; `otherwise` where there is none ("max").
std::uint64_t read_number(const fs::path& path, std::uint64_t otherwise) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  return in >> number ? number : otherwise;
}

// The number after `key` at the beginning of a line.
std::uint64_t read_entry(const fs::path& path, std::string_view key, std::uint64_t otherwise) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(' ', key.size());
    if (begin == std::string::npos) return otherwise;
    std::uint64_t number = 0;
    const auto [end, error] =
        std::from_chars(line.data() + begin, line.data() + line.size(), number);
    return error == std::errc() ? number : otherwise;
  }
  return otherwise;
}

// The names that a version of cgroups has for its files.
struct CgroupFiles {
  const char* root;
  const char* limit;
  const char* usage;
  const char* cache;  // entry of memory.stat
};
constexpr CgroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current",
                                   "inactive_file "};
constexpr CgroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_inactive_file "};

// What tells machines apart. It is one for all containers of a machine, which share its memory.
std::string machine(const fs::path& root) {
  std::ifstream in(root / "proc/sys/kernel/random/boot_id");
  std::string id;
  in >> id;
  return "machine " + id;
}

// Of the process's own group and all above it. Cached files that nobody reads are given back before
// anything is refused, so they do not count as used (the kubelet reckons alike). In a container the
// own group's path may be the host's, which is not there: then the mounted root holds the limit.
// Every container may see its group at the same path: the folder's inode tells them apart.
void add_cgroups(const fs::path& root, const CgroupFiles& files, const fs::path& group,
                 std::vector<MemoryPool>& pools) {
  const fs::path top = root / files.root;
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    const fs::path folder = top / at;
    const std::uint64_t limit = read_number(folder / files.limit, kNoLimit);
    struct stat status {};
    if (limit != kNoLimit && stat(folder.c_str(), &status) == 0) {
      const std::uint64_t usage = read_number(folder / files.usage, 0);
      const std::uint64_t cache = read_entry(folder / "memory.stat", files.cache, 0);
      pools.push_back({machine(root) + " cgroup " + std::to_string(status.st_dev) + ":" +
                           std::to_string(status.st_ino),
                       left(limit, usage - std::min(usage, cache))});
    }
    if (at.empty()) return;
  }
}

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

std::vector<MemoryPool> memory_pools(const fs::path& root) {
  std::vector<MemoryPool> pools;
  const std::uint64_t kib = read_entry(root / "proc/meminfo", "MemAvailable:", kNoLimit);
  if (kib != kNoLimit) pools.push_back({machine(root), kib * 1024});

  fs::path group1;
  fs::path group2;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    if (controllers == ",,") group2 = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) group1 = line.substr(second + 1);
  }
  add_cgroups(root, kVersion2, group2, pools);
  add_cgroups(root, kVersion1, group1, pools);
  return pools;
}

std::uint64_t available_memory(const fs::path& root) {
  // `ulimit -v`, as batch systems set it. statm counts pages; the first number is all that is
  // mapped.
  const std::uint64_t space = read_entry(root / "proc/self/limits", "Max address space", kNoLimit);
  std::uint64_t available = left(space, read_number(root / "proc/self/statm", 0) * page_bytes());
  for (const MemoryPool& pool : memory_pools(root)) available = std::min(available, pool.left);
  return available;
}

std::uint64_t held_memory(const fs::path& root) {
  std::ifstream in(root / "proc/self/statm");
  std::uint64_t mapped = 0;
  std::uint64_t resident = 0;
  std::uint64_t of_files = 0;
  if (!(in >> mapped >> resident >> of_files)) return 0;
  return (resident - std::min(resident, of_files)) * page_bytes();
}

}  // namespace tilewright::runtime
