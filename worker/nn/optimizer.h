// AdamW over the flat vector, rewriting the packed copies of a weight while it is in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/nn/bert.h"

namespace tilewright::nn {

struct AdamWSettings {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.0f;
  float max_grad_norm = 1.0f;  // 0: no clipping
};

template <typename T>
class Optimizer {
 public:
  Optimizer(BertClassifier<T>& model, const Context<T>& context, const AdamWSettings& settings);

  // First and second moments, laid out as the parameters.
  std::span<float> exp_avg() const { return m_.span(); }
  std::span<float> exp_avg_sq() const { return v_.span(); }

  // One update with the compact gradient of parameters.h (its last element, the loss, is left out).
  // `step` counts from 1. Returns the gradient's norm before clipping: blocks of kNormBlock
  // elements summed in double, the blocks' sums added pairwise.
  double step(std::int64_t step, float learning_rate, std::span<const float> gradient,
              const TouchedRows& touched);

 private:
  // A piece of the vector that one thread updates and, for rows of a linear weight, packs.
  struct Task {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t linear = -1;
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    bool decays = false;
    bool words = false;  // begin and end are then rows of the word embeddings
  };
  double norm(std::span<const float> gradient);
  void update_words(const Task& task, const kernels::AdamW& adamw, const float* gradient,
                    const TouchedRows& touched);

  BertClassifier<T>& model_;
  Context<T> c_;
  AdamWSettings settings_;
  runtime::Buffer<float> m_;
  runtime::Buffer<float> v_;
  std::vector<Task> tasks_;
  std::vector<double> block_sums_;
};

}  // namespace tilewright::nn
