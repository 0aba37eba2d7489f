// The reference sum over shards (one buffer per shard, a recursive full tree, no communication),
// and gradients whose sum depends on the order of additions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "worker/collectives/gradient_parts.h"

namespace tilewright::collectives {

using Floats = std::vector<float>;

// Magnitudes from 2^-20 to 2^20 and both signs, so that nearly every addition rounds.
inline std::vector<Floats> shard_gradients(int shards, std::int64_t count, unsigned seed = 1) {
  std::vector<Floats> gradients;
  for (int shard = 0; shard < shards; ++shard) {
    std::mt19937 random(seed * 1000 + static_cast<unsigned>(shard));
    std::uniform_real_distribution<float> mantissa(-1, 1);
    std::uniform_int_distribution<int> exponent(-20, 20);
    Floats& one = gradients.emplace_back(static_cast<std::size_t>(count));
    for (float& x : one) x = std::ldexp(mantissa(random), exponent(random));
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

// The parts of a worker with these subtrees.
struct LocalParts {
  LocalParts(const std::vector<Floats>& shards, const std::vector<Subtree>& subtrees,
             std::int64_t bf16_count = 0) {
    view.count = static_cast<std::int64_t>(shards.front().size());
    view.bf16_count = bf16_count;
    for (const Subtree& one : subtrees) {
      buffers.push_back(tree_sum(shards, one.begin, one.size, bf16_count));
    }
    for (std::size_t i = 0; i < subtrees.size(); ++i) {
      view.parts.push_back({subtrees[i], buffers[i].data()});
    }
    if (subtrees.empty()) buffers.emplace_back(shards.front().size());
    view.sum = buffers.front().data();
  }
  Floats sum() const { return {view.sum, view.sum + view.count}; }
  std::vector<Floats> buffers;
  GradientParts view;
};

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace tilewright::collectives
