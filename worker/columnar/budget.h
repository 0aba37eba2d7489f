// Bounds the memory and the work that a file can cause: a few bytes of a run-length encoding or of
// a compressed page can declare gigabytes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "worker/columnar/location.h"

namespace tilewright::columnar {

class Budget {
 public:
  // The limit is 16 MiB and 1,024 bytes per byte of the file, at most `most`. zlib, the codec with
  // the highest ratio on ordinary text, reaches 1,032. `what` names the bytes in the message and
  // is a literal.
  Budget(std::string_view what, std::size_t file_bytes, std::uint64_t most)
      : what_(what),
        limit_(std::min<std::uint64_t>(most, kFixed + kPerByte * std::uint64_t{file_bytes})) {}

  // Throws Failure(kData) once the sum exceeds the limit.
  void take(std::uint64_t bytes, const Location& location) {
    if (bytes > limit_ - used_) [[unlikely]] {
      location.fail(fmt::format("{} would exceed {} bytes, the limit for a file of this size",
                                what_, limit_));
    }
    used_ += bytes;
  }

 private:
  static constexpr std::uint64_t kFixed = 16u << 20;
  static constexpr std::uint64_t kPerByte = 1024;

  std::string_view what_;
  std::uint64_t limit_;
  std::uint64_t used_ = 0;
};

// Text, numbers and offsets of a table together, in bytes. The text of all GLUE tasks and both
// SQuAD data sets is below 200 MB each.
inline constexpr std::uint64_t kMaxTableBytes = std::uint64_t{2} << 30;
// Bytes of all decompressed pages of a file together.
inline constexpr std::uint64_t kMaxDecompressedBytes = std::uint64_t{8} << 30;

}  // namespace tilewright::columnar
