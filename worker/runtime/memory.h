// Memory of a run: zeroed, 64-byte aligned blocks, on huge pages where the system allows them, and
// an arena that hands out pieces of one block so that a steady step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/check.h"

namespace tilewright::runtime {

// Bytes this process may still use: MemAvailable of /proc/meminfo, bounded by the cgroup's limit.
std::uint64_t available_memory();

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

// A stack of pieces of one block. mark() and release() bracket what a step borrows.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes) : block_(bytes) {}
  // 64-byte aligned, content undefined. Running out is a bug of the size estimate: a check.
  template <typename T>
  T* take(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    TW_CHECK(bytes <= block_.size() - used_, "arena of {} bytes: {} used, {} more wanted",
             block_.size(), used_, bytes);
    T* piece = reinterpret_cast<T*>(block_.data() + used_);
    used_ += bytes;
    if (used_ > peak_) peak_ = used_;
    return piece;
  }
  std::size_t mark() const { return used_; }
  void release(std::size_t mark) { used_ = mark; }
  std::size_t peak() const { return peak_; }
  std::size_t size() const { return block_.size(); }

 private:
  Block block_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace tilewright::runtime
