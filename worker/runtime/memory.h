// Memory of a run: zeroed blocks on huge pages where the system allows them, an arena over one
// block so that a step in steady state does not allocate, and the memory that is still available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace tilewright::runtime {

// Memory that several processes share: the machine's, or that of a cgroup with a limit. Processes
// with the same pool name share the pool; names of different machines differ.
struct MemoryPool {
  std::string name;
  std::uint64_t left = 0;  // bytes; inactive file cache does not count as used
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

// A zeroed block of memory. Blocks of 2 MiB and more request huge pages.
class Block {
 public:
  Block() = default;
  explicit Block(std::size_t bytes);  // throws Failure(kMemory) if the system refuses
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // Sets all bytes to zero. Gives the pages back instead of writing to them, so that the threads
  // that use the block touch it first.
  void clear();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A zeroed array of a trivially destructible type.
template <typename Element>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : block_(count * sizeof(Element)), count_(count) {}
  Element* data() const { return reinterpret_cast<Element*>(block_.data()); }
  std::size_t size() const { return count_; }
  std::span<Element> span() const { return {data(), count_}; }
  Element& operator[](std::size_t i) const { return data()[i]; }
  void clear() { block_.clear(); }

 private:
  Block block_;
  std::size_t count_ = 0;
};

// Allocates consecutive parts of one block. A measuring arena has no block and only counts, so that
// one function defines both the required size and the layout.
class Arena {
 public:
  Arena() = default;  // measuring
  explicit Arena(std::size_t bytes) : block_(bytes), measuring_(false) {}
  // 64-byte aligned with undefined content; null while measuring. A block that is too small is a
  // bug of the size estimate and fails a CHECK.
  template <typename Element>
  Element* take(std::int64_t count) {
    const std::size_t begin = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(Element) + 63) / 64 * 64;
    if (measuring_) return nullptr;
    TW_CHECK(used_ <= block_.size(), "arena of {} bytes: {} used, {} requested", block_.size(),
             begin, used_ - begin);
    return reinterpret_cast<Element*>(block_.data() + begin);
  }
  std::size_t used() const { return used_; }
  std::size_t size() const { return block_.size(); }
  void reset() { used_ = 0; }

 private:
  Block block_;
  std::size_t used_ = 0;
  bool measuring_ = true;
};

}  // namespace tilewright::runtime
