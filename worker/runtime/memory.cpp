#include "worker/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/result.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::runtime {

void touch_pages(std::span<std::byte> memory) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < memory.size(); at += page) {
    volatile std::byte& first = memory[at];
    first = first;
  }
}

void touch_pages(std::span<std::byte> memory, ThreadPool& pool) {
  pool.for_ranges(static_cast<std::int64_t>(memory.size()), kHugePage,
                  [&](std::int64_t begin, std::int64_t end) {
                    touch_pages(memory.subspan(static_cast<std::size_t>(begin),
                                               static_cast<std::size_t>(end - begin)));
                  });
}

Block::Block(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Failure(ExitCode::kMemory, fmt::format("cannot allocate {} MiB of memory: {}",
                                                 bytes >> 20, std::strerror(errno)));
  }
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // only advice, may fail
  data_ = static_cast<std::byte*>(memory);
}

Block::~Block() {
  if (data_ != nullptr) munmap(data_, size_);
}

void Block::clear() {
  if (size_ == 0) return;
  // Refused for locked memory.
  if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
}

Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace tilewright::runtime
