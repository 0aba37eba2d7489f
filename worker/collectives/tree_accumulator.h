// Sums the gradients of a worker that computes its shards in several micro-batches. Each
// micro-batch gives the gradient of one aligned subtree. Siblings merge as in a binary counter, so
// the parts at the end of the step are the largest aligned subtrees, as the all-reduce requires.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/gradient_parts.h"

namespace tilewright::collectives {

class TreeAccumulator {
 public:
  // The number of gradient buffers that these micro-batches need at the same time; at least 1.
  static int buffers_needed(std::span<const Subtree> micro_batches);

  // `micro_batches` of every step: adjacent aligned subtrees from left to right; empty for a worker
  // without shards. `buffers`: buffers_needed() buffers of `count` floats, owned by the caller. The
  // first bf16_count elements of each micro-batch and of each sum are rounded to bf16.
  TreeAccumulator(std::vector<Subtree> micro_batches, std::int64_t count,
                  std::vector<float*> buffers, std::int64_t bf16_count = 0);

  // Discards all sums and starts again with the first micro-batch.
  void begin_step();
  // The buffer for the gradient of the next micro-batch, its shards summed in tree order. Its
  // content is undefined.
  std::span<float> begin_micro_batch();
  // Rounds and merges elements of the current micro-batch, which are final. Call it once for each
  // element; no range may cross bf16_count.
  // Several threads may finish disjoint ranges concurrently.
  void finish(Range elements);
  void end_micro_batch();  // after finish() of every element

  // The parts at the end of the step. Valid from the last begin_micro_batch() on, so that the
  // all-reduce can begin before the elements are final.
  const GradientParts& parts() const { return parts_; }

 private:
  bool is_last_micro_batch() const {
    return micro_batch_ + 1 == static_cast<int>(micro_batches_.size());
  }

  std::vector<Subtree> micro_batches_;
  std::int64_t count_;
  std::vector<float*> buffers_;
  std::vector<int> buffer_of_micro_batch_;
  std::vector<Merge> merges_;     // slot i is that of micro-batch i
  std::vector<int> first_merge_;  // index in merges_, by micro-batch; the last is merges_.size()
  GradientParts parts_;
  int micro_batch_ = -1;  // the current micro-batch, or the last one that ended
  bool in_micro_batch_ = false;
  std::atomic<std::int64_t> finished_{0};
};

}  // namespace tilewright::collectives
