// Memory of a run: zeroed blocks on huge pages where the system allows them, and an arena over one
// block so that a step in steady state does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/check.h"

namespace tilewright::runtime {

class ThreadPool;

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Gives memory its pages now instead of at the first access to each. Keeps the content.
void touch_pages(std::span<std::byte> memory);
void touch_pages(std::span<std::byte> memory, ThreadPool& pool);  // with all of its threads

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
  std::span<std::byte> bytes() const { return {data_, size_}; }
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
  std::span<std::byte> bytes() const { return block_.bytes(); }
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
  std::span<std::byte> bytes() const { return block_.bytes(); }
  void reset() { used_ = 0; }

 private:
  Block block_;
  std::size_t used_ = 0;
  bool measuring_ = true;
};

}  // namespace tilewright::runtime
