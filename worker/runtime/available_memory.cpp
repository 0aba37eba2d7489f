#include "worker/runtime/available_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "common/host/cgroups.h"

namespace tilewright::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = UINT64_MAX;

std::uint64_t left(std::uint64_t limit, std::uint64_t used) {
  if (limit == kNoLimit) return kNoLimit;
  return limit > used ? limit - used : 0;
}

// Returns the number at the start of a file, `fallback` if there is none ("max").
std::uint64_t read_number(const fs::path& path, std::uint64_t fallback) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  return in >> number ? number : fallback;
}

// Returns the number after `key` in the first line that starts with it.
std::uint64_t read_entry(const fs::path& path, std::string_view key, std::uint64_t fallback) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", key.size());
    if (begin == std::string::npos) return fallback;
    std::uint64_t number = 0;
    const auto [end, error] =
        std::from_chars(line.data() + begin, line.data() + line.size(), number);
    return error == std::errc() ? number : fallback;
  }
  return fallback;
}

// File names of a cgroup version.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* cache[2];  // entries of memory.stat
};
constexpr CgroupFiles kCgroupV2 = {
    "memory.max", "memory.current", {"inactive_file ", "active_file "}};
constexpr CgroupFiles kCgroupV1 = {"memory.limit_in_bytes",
                                   "memory.usage_in_bytes",
                                   {"total_inactive_file ", "total_active_file "}};

// Identifies the machine. The boot id is the same in all containers of a machine.
std::string machine(const fs::path& root) {
  std::ifstream in(root / "proc/sys/kernel/random/boot_id");
  std::string id;
  in >> id;
  return "machine " + id;
}

// Adds the limits of the process's cgroup and of all its parents. File cache does not count as
// used, because the kernel reclaims it before it refuses memory, also if it is active: a checkpoint
// that was written and read. Containers may see different cgroups at the same path, so the inode of
// the directory identifies a cgroup.
void add_cgroups(const fs::path& root, const CgroupFiles& files,
                 const std::vector<fs::path>& directories, std::vector<MemoryPool>& pools) {
  for (const fs::path& directory : directories) {
    const std::uint64_t limit = read_number(directory / files.limit, kNoLimit);
    struct stat status {};
    if (limit == kNoLimit || stat(directory.c_str(), &status) != 0) continue;
    const std::uint64_t usage = read_number(directory / files.usage, 0);
    std::uint64_t cache = 0;
    for (const char* entry : files.cache) cache += read_entry(directory / "memory.stat", entry, 0);
    pools.push_back({machine(root) + " cgroup " + std::to_string(status.st_dev) + ":" +
                         std::to_string(status.st_ino),
                     left(limit, usage - std::min(usage, cache))});
  }
}

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

std::vector<MemoryPool> memory_pools(const fs::path& root) {
  std::vector<MemoryPool> pools;
  const std::uint64_t kib = read_entry(root / "proc/meminfo", "MemAvailable:", kNoLimit);
  if (kib != kNoLimit) pools.push_back({machine(root), kib * 1024});

  const host::CgroupDirectories cgroups = host::cgroup_directories("memory", root);
  add_cgroups(root, kCgroupV2, cgroups.v2, pools);
  add_cgroups(root, kCgroupV1, cgroups.v1, pools);
  return pools;
}

std::uint64_t available_memory(const fs::path& root) {
  // `ulimit -v`, which batch systems set. The first number of statm is the mapped size in pages.
  const std::uint64_t space = read_entry(root / "proc/self/limits", "Max address space", kNoLimit);
  std::uint64_t available = left(space, read_number(root / "proc/self/statm", 0) * page_bytes());
  for (const MemoryPool& pool : memory_pools(root)) available = std::min(available, pool.left);
  return available;
}

std::uint64_t anonymous_rss(const fs::path& root) {
  std::ifstream in(root / "proc/self/statm");
  std::uint64_t mapped = 0;
  std::uint64_t resident = 0;
  std::uint64_t file_pages = 0;
  if (!(in >> mapped >> resident >> file_pages)) return 0;
  return (resident - std::min(resident, file_pages)) * page_bytes();
}

std::uint64_t peak_rss(const fs::path& root) {
  return read_entry(root / "proc/self/status", "VmHWM:", 0) * 1024;
}

}  // namespace tilewright::runtime
