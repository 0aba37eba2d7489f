// The additions of the all-reduce: sums in the order of a list of merges, of fp32 numbers that may
// be rounded to bf16.
#pragma once

#include <cstdint>
#include <span>

#include "worker/collectives/gradient_parts.h"
#include "worker/collectives/shard_tree.h"
#include "worker/runtime/bf16.h"
#include "worker/runtime/precision.h"

namespace tilewright::collectives {

// What each sum is rounded to.
using runtime::Precision;

// Of the sums of elements that are all within bf16_count or all beyond it.
Precision precision_of(const GradientParts& parts, Range elements);

// out[i] = left[i] + right[i]. out may equal left or right but must not overlap them partially.
void add(Precision precision, float* out, const float* left, const float* right,
         std::int64_t count);

// Rounds to bf16 in place.
void round_to_bf16(float* data, std::int64_t count);

// Conversions of floats that are bf16 numbers.
void pack(runtime::bf16* out, const float* in, std::int64_t count);
void unpack(float* out, const runtime::bf16* in, std::int64_t count);

// Performs merges over slots of `count` elements, overwriting them.
void run_merges(Precision precision, std::span<const Merge> merges, std::span<float* const> slots,
                std::int64_t count);

// The same for merges into slot 0, whose result is written to each of `outs`, at least one. They
// may be slots.
void run_merges(Precision precision, std::span<const Merge> merges, std::span<float* const> slots,
                std::span<float* const> outs, std::int64_t count);

}  // namespace tilewright::collectives
