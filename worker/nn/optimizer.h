// AdamW over the flat parameter vector. It rewrites the packed copies of each weight while the
// weight is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/nn/model.h"

namespace tilewright::nn {

struct AdamWSettings {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.0f;
  float max_grad_norm = 1.0f;  // 0: no clipping
};

template <typename Element>
class Optimizer {
 public:
  Optimizer(Model<Element>& model, const Context<Element>& context, const AdamWSettings& settings);

  // First and second moments, laid out like the parameters. The caller may change them before the
  // next step.
  std::span<float> exp_avg() {
    moments_may_change();
    return m_.span();
  }
  std::span<float> exp_avg_sq() {
    moments_may_change();
    return v_.span();
  }
  std::span<const float> exp_avg() const { return m_.span(); }
  std::span<const float> exp_avg_sq() const { return v_.span(); }
  // Sets both to zero, as in a new optimizer.
  void clear();
  // The memory of both moments.
  std::vector<std::span<std::byte>> memory() const { return {m_.bytes(), v_.bytes()}; }

  // Call it after each write to the moments through a span of before.
  void moments_may_change() {
    forget_idle_words();
    is_clear_ = false;
  }

  // Performs one update with the compact gradient of parameters.h; ignores its last element, the
  // loss. `step` counts from 1. Returns the gradient norm before clipping: blocks of kNormBlock
  // elements are summed in double, and the block sums are added pairwise.
  double step(std::int64_t step, float learning_rate, std::span<const float> gradient,
              const TouchedRows& touched);

 private:
  // A part of the vector that one thread updates and, if it belongs to a linear weight, packs.
  struct Task {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t linear = -1;
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    bool decays = false;
    bool word_rows = false;  // if true, begin and end are rows of the word embeddings
  };
  // What is known of the moments of a word's row. Without a gradient and weight decay, a step does
  // not change a row whose moments are zero.
  enum class WordMoments : std::uint8_t { kUnknown, kZero, kNonZero };
  void forget_idle_words() { std::ranges::fill(words_, WordMoments::kUnknown); }
  bool has_zero_moments(std::int64_t word);
  double norm(std::span<const float> gradient);
  void update_word_embeddings(const Task& task, const kernels::AdamW& adamw, const float* gradient,
                              const TouchedRows& touched);

  Model<Element>& model_;
  Context<Element> c_;
  AdamWSettings settings_;
  runtime::Buffer<float> m_;
  runtime::Buffer<float> v_;
  bool is_clear_ = true;  // the moments are zero
  std::vector<Task> tasks_;
  std::vector<WordMoments> words_;  // of each row of the word embeddings
  std::vector<double> block_sums_;
};

}  // namespace tilewright::nn
