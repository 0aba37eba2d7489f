// The reference sum over shards (one buffer per shard, a recursive full tree, no communication),
// and gradients whose sum depends on the order of additions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "worker/collectives/gradient_memory.h"
#include "worker/collectives/gradient_parts.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::collectives {

using Floats = std::vector<float>;

// Magnitudes from 2^-20 to 2^21 and both signs, so that nearly every addition rounds.
inline std::vector<Floats> shard_gradients(int shards, std::int64_t count, unsigned seed = 1) {
  std::vector<Floats> gradients;
  for (int shard = 0; shard < shards; ++shard) {
    runtime::SplitMix64 random(seed * 1000 + static_cast<unsigned>(shard));
    Floats& one = gradients.emplace_back(static_cast<std::size_t>(count));
    for (float& x : one) {
      const std::uint64_t bits = random.next();
      const auto sign_and_mantissa = static_cast<std::uint32_t>(bits) & 0x807f'ffffU;
      const auto exponent = static_cast<std::uint32_t>(127 - 20 + (bits >> 32) % 41);
      x = std::bit_cast<float>(sign_and_mantissa | exponent << 23);
    }
  }
  return gradients;
}

// The nearest bf16 number, ties to even, by division in double: bf16 has 8 significant bits.
inline float nearest_bf16(float x) {
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(x), &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(mantissa * 256), exponent - 8));
}

// The first bf16_count elements of each shard and of each sum are rounded to bf16.
inline Floats tree_sum(const std::vector<Floats>& shards, int begin, int size,
                       std::int64_t bf16_count = 0) {
  Floats sum = shards[static_cast<std::size_t>(begin)];
  if (size > 1) {
    sum = tree_sum(shards, begin, size / 2, bf16_count);
    const Floats right = tree_sum(shards, begin + size / 2, size / 2, bf16_count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
  }
  for (std::int64_t i = 0; i < bf16_count; ++i) {
    float& x = sum[static_cast<std::size_t>(i)];
    x = nearest_bf16(x);
  }
  return sum;
}

inline Floats tree_sum(const std::vector<Floats>& shards, std::int64_t bf16_count = 0) {
  return tree_sum(shards, 0, static_cast<int>(shards.size()), bf16_count);
}

// The parts of a worker with these subtrees: in `memory`, if it is not null, from its end.
struct LocalParts {
  LocalParts(const std::vector<Floats>& shards, const std::vector<Subtree>& subtrees,
             std::int64_t bf16_count = 0, const GradientMemory* memory = nullptr) {
    const std::size_t count = shards.front().size();
    view.count = static_cast<std::int64_t>(count);
    view.bf16_count = bf16_count;
    for (const Subtree& one : subtrees) {
      buffers.push_back(tree_sum(shards, one.begin, one.size, bf16_count));
    }
    if (subtrees.empty()) buffers.emplace_back(count);
    std::vector<float*> data;
    for (Floats& buffer : buffers) {
      data.push_back(memory == nullptr ? buffer.data()
                                       : memory->own().last((data.size() + 1) * count).data());
      if (memory != nullptr) std::ranges::copy(buffer, data.back());
    }
    for (std::size_t i = 0; i < subtrees.size(); ++i) view.parts.push_back({subtrees[i], data[i]});
    view.sum = data.front();
  }
  Floats sum() const { return {view.sum, view.sum + view.count}; }
  std::vector<Floats> buffers;
  GradientParts view;
};

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace tilewright::collectives
