// Random operands of the kernel benchmarks.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"
#include "worker/runtime/memory.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::bench {

// Random numbers in (-1, 1); zeros could change the speed.
template <typename Activation>
runtime::Buffer<Activation> random_buffer(std::int64_t count, std::uint64_t seed) {
  runtime::SplitMix64 random(seed);
  runtime::Buffer<Activation> values(static_cast<std::size_t>(count));
  for (Activation& value : values.span()) {
    const auto drawn = static_cast<std::int32_t>(random.next() >> 32);
    value = runtime::from_float<Activation>(static_cast<float>(drawn) * 0x1p-31f);
  }
  return values;
}

}  // namespace tilewright::bench
