// Random operands of the kernel benchmarks.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"
#include "worker/runtime/memory.h"

namespace tilewright::bench {

// Random numbers in (-1, 1); zeros could change the speed.
template <typename Activation>
runtime::Buffer<Activation> random_buffer(std::int64_t count, std::uint32_t seed) {
  runtime::Buffer<Activation> values(static_cast<std::size_t>(count));
  for (Activation& value : values.span()) {
    seed = seed * 1664525u + 1013904223u;
    value = runtime::from_float<Activation>(static_cast<float>(static_cast<std::int32_t>(seed)) *
                                            0x1p-31f);
  }
  return values;
}

}  // namespace tilewright::bench
