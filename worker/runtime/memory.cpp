#include "worker/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "common/base/result.h"

namespace tilewright::runtime {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::uint64_t read_number(const char* path, std::uint64_t otherwise) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  return in >> number ? number : otherwise;
}

}  // namespace

std::uint64_t available_memory() {
  std::uint64_t available = UINT64_MAX;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("MemAvailable:")) available = std::stoull(line.substr(13)) * 1024;
  }
  const auto left = [](std::uint64_t limit, std::uint64_t used) {
    return limit > used ? limit - used : 0;
  };
  const std::uint64_t v2 = read_number("/sys/fs/cgroup/memory.max", UINT64_MAX);
  const std::uint64_t v1 = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", UINT64_MAX);
  if (v2 != UINT64_MAX) {
    available = std::min(available, left(v2, read_number("/sys/fs/cgroup/memory.current", 0)));
  }
  if (v1 != UINT64_MAX) {
    available = std::min(available,
                         left(v1, read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0)));
  }
  return available;
}

Block::Block(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Failure(ExitCode::kMemory, fmt::format("cannot get {} MiB of memory: {}", bytes >> 20,
                                                 std::strerror(errno)));
  }
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // advice: refusal changes nothing
  data_ = static_cast<std::byte*>(memory);
}

Block::~Block() {
  if (data_ != nullptr) munmap(data_, size_);
}

Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace tilewright::runtime
