// Sums the gradients of a worker that computes its shards in several passes. Each pass gives the
// gradient of one aligned subtree; siblings merge as in a binary counter, so that at the end of the
// step the parts are the largest aligned subtrees, ready for the exchange.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/gradient_parts.h"
#include "worker/runtime/memory.h"

namespace tilewright::collectives {

class TreeAccumulator {
 public:
  // Buffers of `count` floats that these passes need at once; at least 1.
  static int buffers_needed(std::span<const Subtree> passes);

  // The passes of every step: adjacent aligned subtrees from left to right; empty for a worker
  // without shards. Allocates buffers_needed() buffers.
  TreeAccumulator(std::vector<Subtree> passes, std::int64_t count);
  // The same on buffers of the caller, buffers_needed() of them.
  TreeAccumulator(std::vector<Subtree> passes, std::int64_t count, std::vector<float*> buffers);

  // Forgets what was summed and begins with the first pass again.
  void begin_step();
  // Where the next pass writes its gradient, shards combined in tree order; content undefined.
  std::span<float> begin_pass();
  // Elements [begin, end) of the current pass are final: merges them. Every element once a pass;
  // disjoint ranges may come from several threads.
  void finish(Range elements);
  void end_pass();  // every element was finished
  bool last_pass() const { return pass_ + 1 == static_cast<int>(passes_.size()); }

  // The parts at the end of the step. Valid from the last begin_pass() on, so that an exchange can
  // be prepared before; the elements are final as finish() says.
  const GradientParts& parts() const { return parts_; }

 private:
  void plan();

  std::vector<Subtree> passes_;
  std::int64_t count_;
  std::vector<runtime::Buffer<float>> owned_;
  std::vector<float*> buffers_;
  std::vector<int> buffer_of_pass_;
  std::vector<Merge> merges_;     // in terms of passes
  std::vector<int> first_merge_;  // of each pass, in merges_; one more at the end
  GradientParts parts_;
  int pass_ = -1;  // the current pass, or the last one that ended
  bool in_pass_ = false;
  std::atomic<std::int64_t> finished_{0};
};

}  // namespace tilewright::collectives
