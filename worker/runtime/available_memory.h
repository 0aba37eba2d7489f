// The memory that a process uses and may still use: the limits that it shares with other processes
// (the machine and its cgroups) and its address space limit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tilewright::runtime {

// Memory that several processes share: the machine's, or that of a cgroup with a limit. Processes
// with the same pool name share the pool; names of different machines differ.
struct MemoryPool {
  std::string name;
  std::uint64_t left = 0;  // bytes; file cache does not count as used
};

// The pools of this process: the machine (MemAvailable in /proc/meminfo), then its cgroups with a
// limit (v1 and v2). `root` replaces / in the paths of /proc and /sys, for tests.
std::vector<MemoryPool> memory_pools(const std::filesystem::path& root = "/");

// Bytes that this process may still use: the minimum over its pools and its address space limit
// (`ulimit -v`).
std::uint64_t available_memory(const std::filesystem::path& root = "/");

// Bytes of the pools that this process already uses: resident memory that is not file-backed.
std::uint64_t anonymous_rss(const std::filesystem::path& root = "/");

// The largest resident memory of this process so far, in bytes.
std::uint64_t peak_rss(const std::filesystem::path& root = "/");

}  // namespace tilewright::runtime
