#include "worker/collectives/sum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace tilewright::collectives {
namespace {

// 16 KiB per slot: the blocks of six slots stay in the L2 cache from one merge to the next.
constexpr std::int64_t kBlock = 4096;

void copy(float* out, const float* in, std::int64_t count) {
  if (out != in) std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof *out);
}

// Performs the merges over all slots block by block. The result of the last one is written to
// `outs`, if there are any.
void merge_blocks(Precision precision, std::span<const Merge> merges, std::span<float* const> slots,
                  std::span<float* const> outs, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    for (const Merge& merge : merges) {
      float* left = slots[static_cast<std::size_t>(merge.left)] + begin;
      const float* right = slots[static_cast<std::size_t>(merge.right)] + begin;
      const bool last = !outs.empty() && &merge == &merges.back();
      add(precision, last ? outs.front() + begin : left, left, right, length);
    }
    for (std::size_t i = 1; i < outs.size(); ++i) {
      copy(outs[i] + begin, outs.front() + begin, length);
    }
  }
}

}  // namespace

Precision precision_of(const GradientParts& parts, Range elements) {
  TW_CHECK(elements.end <= parts.bf16_count || elements.begin >= parts.bf16_count,
           "elements [{}, {}), of which the first {} are bf16", elements.begin, elements.end,
           parts.bf16_count);
  return elements.begin < parts.bf16_count ? Precision::kBf16 : Precision::kFp32;
}

void add(Precision precision, float* out, const float* left, const float* right,
         std::int64_t count) {
  if (precision == Precision::kFp32) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = runtime::to_float(runtime::to_bf16(left[i] + right[i]));
    }
  }
}

void round_to_bf16(float* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = runtime::to_float(runtime::to_bf16(data[i]));
}

void pack(runtime::bf16* out, const float* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(in[i]) >> 16);
  }
}

void unpack(float* out, const runtime::bf16* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = runtime::to_float(in[i]);
}

void run_merges(Precision precision, std::span<const Merge> merges, std::span<float* const> slots,
                std::int64_t count) {
  merge_blocks(precision, merges, slots, {}, count);
}

void run_merges(Precision precision, std::span<const Merge> merges, std::span<float* const> slots,
                std::span<float* const> outs, std::int64_t count) {
  TW_CHECK(!outs.empty(), "no output of the merges");
  if (merges.empty()) {
    for (float* out : outs) copy(out, slots[0], count);
    return;
  }
  TW_CHECK(merges.back().left == 0, "the last merge writes slot {}, expected slot 0",
           merges.back().left);
  merge_blocks(precision, merges, slots, outs, count);
}

}  // namespace tilewright::collectives
