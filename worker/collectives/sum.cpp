#include "worker/collectives/sum.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace tilewright::collectives {
namespace {

// 16 KiB per slot: the blocks of six slots stay in the L2 cache from one merge to the next.
constexpr std::int64_t kBlock = 4096;

}  // namespace

void add(float* out, const float* left, const float* right, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

void run_merges(std::span<const Merge> merges, std::span<float* const> slots, float* out,
                std::int64_t count) {
  if (merges.empty()) {
    if (out != slots[0]) std::memcpy(out, slots[0], static_cast<std::size_t>(count) * sizeof *out);
    return;
  }
  TW_CHECK(merges.back().left == 0, "the last merge writes slot {}, expected slot 0",
           merges.back().left);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    for (const Merge& merge : merges) {
      float* left = slots[static_cast<std::size_t>(merge.left)] + begin;
      const float* right = slots[static_cast<std::size_t>(merge.right)] + begin;
      add(&merge == &merges.back() ? out + begin : left, left, right, length);
    }
  }
}

}  // namespace tilewright::collectives
