// The sizes of the buffers that a training allocates at its start, and of the batches that bound
// them; see batching.h.
#pragma once

#include <cstdint>

#include "worker/nn/context.h"
#include "worker/train/job.h"
#include "worker/train/memory_estimate.h"

namespace tilewright::train {

struct MemoryPlan {
  nn::BatchLimits training;    // of micro-batches
  nn::BatchLimits evaluation;  // of the batches of evaluation_batch_end()
  std::int64_t gradient_elements = 0;
  // For the even split among up to max_workers. Other splits and a larger world may need more; see
  // TrainingStep::reserve_gradients().
  int gradient_buffers = 1;
};

MemoryPlan plan_memory(const Job& job);

template <typename Activation>
MemoryEstimate estimate_memory(const Job& job, const nn::Context<Activation>& context,
                               const MemoryPlan& plan);

}  // namespace tilewright::train
