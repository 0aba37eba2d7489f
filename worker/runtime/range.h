// A half-open range of examples, shards, rows or elements.
#pragma once

#include <cstdint>

namespace tilewright::runtime {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace tilewright::runtime
