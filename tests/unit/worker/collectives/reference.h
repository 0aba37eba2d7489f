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

inline Floats tree_sum(const std::vector<Floats>& shards, int begin, int size) {
  if (size == 1) return shards[static_cast<std::size_t>(begin)];
  Floats left = tree_sum(shards, begin, size / 2);
  const Floats right = tree_sum(shards, begin + size / 2, size / 2);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

inline Floats tree_sum(const std::vector<Floats>& shards) {
  return tree_sum(shards, 0, static_cast<int>(shards.size()));
}

// The parts of a worker with these subtrees.
struct LocalParts {
  LocalParts(const std::vector<Floats>& shards, const std::vector<Subtree>& subtrees) {
    view.count = static_cast<std::int64_t>(shards.front().size());
    for (const Subtree& one : subtrees) buffers.push_back(tree_sum(shards, one.begin, one.size));
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
