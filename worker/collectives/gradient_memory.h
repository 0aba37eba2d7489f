// Gradient buffers in memory that the ranks of a host have mapped. Each rank adds the parts of the
// others where they are and writes its sums to where the others need them (step_exchange.h), so
// that no byte of a gradient is copied in between.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker/collectives/mesh.h"
#include "worker/collectives/shared_segment.h"

namespace tilewright::collectives {

// For one mesh only. A process of an earlier membership epoch that was frozen in the middle of a
// step may still write to its peers' memory when it resumes, so each epoch needs memory of its own.
class GradientMemory {
 public:
  // Makes `floats` zeros, which may be another number on each rank, and opens the memory of the
  // ranks that share memory in this mesh. Null if there is no such rank or the system refuses.
  // Throws Failure(kPeerLost). Collective.
  static std::unique_ptr<GradientMemory> share(Mesh& mesh, std::size_t floats,
                                               MonotonicTime deadline);

  std::span<float> own() const { return floats_of(own_); }
  // That of a peer if both have opened the other's, otherwise empty: it is empty on both or on
  // none.
  std::span<float> of(int peer) const { return floats_of(peers_[static_cast<std::size_t>(peer)]); }

 private:
  explicit GradientMemory(std::size_t world) : peers_(world) {}
  static std::span<float> floats_of(const SharedSegment& segment) {
    return {reinterpret_cast<float*>(segment.data()), segment.size() / sizeof(float)};
  }

  SharedSegment own_;
  std::vector<SharedSegment> peers_;  // by rank
};

}  // namespace tilewright::collectives
