// A copy of weights and AdamW's moments, from which a checkpoint is written while the training
// changes the originals.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/kernels/ops.h"
#include "worker/nn/parameters.h"
#include "worker/runtime/memory.h"

namespace tilewright::checkpoint {

// Three flat vectors of equal length.
struct StateVectors {
  std::span<const float> weights, exp_avg, exp_avg_sq;
};

// The tensors of a flat vector that begins at `base`.
std::vector<TensorView> tensor_views(const nn::ParameterLayout& layout, float* base);

// Those of three flat vectors.
TrainingTensors training_tensors(const nn::ParameterLayout& layout, float* weights, float* exp_avg,
                                 float* exp_avg_sq);
// Those of a state that is only written to a checkpoint.
TrainingTensors tensors_to_write(const nn::ParameterLayout& layout, const StateVectors& state);

// The memory is kept for the next copy. Its pages come from the system when they are first written.
class StateCopy {
 public:
  static std::size_t bytes(std::size_t elements) { return 3 * elements * sizeof(float); }

  // `elements`: of each vector. Throws Failure(kMemory) if the system refuses.
  explicit StateCopy(std::size_t elements);

  // Writes to every page, so that take() need not wait for the system. May run on another thread
  // before the first take(); stop_touching() ends it early.
  void touch_pages();
  void stop_touching() { stopped_ = true; }
  // Copies on all threads of the pool.
  void take(const StateVectors& from, runtime::ThreadPool& pool, const kernels::ParameterOps& ops);

  TrainingTensors tensors(const nn::ParameterLayout& layout) const;

 private:
  runtime::Buffer<float> vectors_[3];
  std::atomic<bool> stopped_ = false;
};

}  // namespace tilewright::checkpoint
