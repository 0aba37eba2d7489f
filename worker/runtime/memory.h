// Memory of a run: zeroed, 64-byte aligned blocks, on huge pages where the system allows them, and
// an arena that hands out pieces of one block so that a steady step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace tilewright::runtime {

// Memory that several processes draw on: the machine's, or that of a cgroup with a limit. Processes
// that name a pool alike share it; names differ between machines.
struct MemoryPool {
  std::string name;
  std::uint64_t left = 0;  // bytes; files that are only cached do not count as used
};

// The pools of this process: the machine (MemAvailable of /proc/meminfo), then its cgroups (either
// version) that have a limit. `root`: what stands for / when the system's files are read.
std::vector<MemoryPool> memory_pools(const std::filesystem::path& root = "/");

// Bytes this process may still use: the least that its pools and its address space (`ulimit -v`)
// leave.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

// Bytes of the pools that this process holds already: resident and of no file.
std::uint64_t held_memory(const std::filesystem::path& root = "/");

class Block {
 public:
  Block() = default;
  explicit Block(std::size_t bytes);  // throws Failure(kMemory) when the system refuses
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Elements of one trivially destructible type, zeroed at birth.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : block_(count * sizeof(T)), count_(count) {}
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  std::size_t size() const { return count_; }
  std::span<T> span() const { return {data(), count_}; }
  T& operator[](std::size_t i) const { return data()[i]; }

 private:
  Block block_;
  std::size_t count_ = 0;
};

// Pieces cut from one block, one after the other. A measuring arena has no block: it only counts,
// so that one function says both how much is needed and where everything lies.
class Arena {
 public:
  Arena() = default;  // measuring
  explicit Arena(std::size_t bytes) : block_(bytes), measuring_(false) {}
  // 64-byte aligned, content undefined; null while measuring. Running out is a bug of the size
  // estimate: a check.
  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t begin = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    if (measuring_) return nullptr;
    TW_CHECK(used_ <= block_.size(), "arena of {} bytes: {} used, {} wanted", block_.size(), begin,
             used_ - begin);
    return reinterpret_cast<T*>(block_.data() + begin);
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
