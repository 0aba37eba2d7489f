// The sizes of the buffers that a training allocates at its start.
#pragma once

#include <cstdint>

#include "worker/nn/context.h"
#include "worker/train/job.h"
#include "worker/train/memory_estimate.h"

namespace tilewright::train {

struct MemoryPlan {
  std::int64_t tokens = 0;      // in a micro-batch, at most
  std::int64_t examples = 0;    // in a micro-batch, at most
  std::int64_t max_seqlen = 0;  // tokens of the longest example
  std::int64_t gradient_elements = 0;
  // For every world size up to max_workers. A larger world may need more; see
  // TrainingStep::reserve_gradients().
  int gradient_buffers = 1;
  bool evaluation_is_largest = false;  // `tokens` comes from evaluation
};

MemoryPlan plan_memory(const Job& job);

template <typename Activation>
MemoryEstimate estimate_memory(const Job& job, const nn::Context<Activation>& context,
                               const MemoryPlan& plan);

}  // namespace tilewright::train
