// A Reducer whose gradients are where the fixture of cluster.h says.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "worker/collectives/gradient_memory.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {

// Constructed before the Reducer and destroyed after it.
struct TestedMemory {
  std::unique_ptr<GradientMemory> shared;
};

class TestedReducer : private TestedMemory, public Reducer {
 public:
  // For gradients of up to `count` elements, with a buffer for each of up to kBuffers subtrees.
  TestedReducer(Mesh& mesh, std::span<const Range> split, int shards, std::int64_t count,
                ReducerOptions options = {})
      : TestedMemory{share(mesh, count)},
        Reducer(mesh, split, shards, with(std::move(options), shared.get())) {}

  const GradientMemory* memory() const { return shared.get(); }
  LocalParts parts(const std::vector<Floats>& gradients, std::int64_t bf16_count = 0) const {
    return {gradients, local_parts(), bf16_count, memory()};
  }

 private:
  static constexpr std::int64_t kBuffers = 8;
  static std::unique_ptr<GradientMemory> share(Mesh& mesh, std::int64_t count) {
    if (!tested_gradient_memory) return nullptr;
    auto memory =
        GradientMemory::share(mesh, static_cast<std::size_t>(count * kBuffers), test_deadline());
    EXPECT_TRUE(memory != nullptr || mesh.world() == 1);
    return memory;
  }
  static ReducerOptions with(ReducerOptions options, const GradientMemory* memory) {
    options.memory = memory;
    return options;
  }
};

}  // namespace tilewright::collectives
