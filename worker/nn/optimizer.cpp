#include "worker/nn/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tilewright::nn {
namespace {

// 64 KiB of each of the four vectors per task.
constexpr std::int64_t kChunkElements = 16384;
constexpr std::int64_t kWordRows = 64;
constexpr std::int64_t kPackRows = 64;  // pack_weight requires ranges in multiples of this

}  // namespace

template <typename Element>
Optimizer<Element>::Optimizer(Model<Element>& model, const Context<Element>& context,
                              const AdamWSettings& settings)
    : model_(model),
      c_(context),
      settings_(settings),
      m_(model.parameters().size()),
      v_(model.parameters().size()),
      words_(static_cast<std::size_t>(model.config().vocab_size), WordMoments::kUnknown) {
  const ParameterLayout& layout = model.layout();
  const std::vector<LinearLayout> linears = layout.linears();
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const LinearLayout& l = linears[i];
    for (std::int64_t row = 0; row < l.N; row += kPackRows) {
      const std::int64_t end = std::min(l.N, row + kPackRows);
      tasks_.push_back({l.weight + row * l.K, l.weight + end * l.K, static_cast<std::int64_t>(i),
                        row, end, true, false});
    }
  }
  const auto in_linear = [&](std::int64_t offset) {
    return std::any_of(linears.begin(), linears.end(), [&](const LinearLayout& l) {
      return offset >= l.weight && offset < l.weight + l.N * l.K;
    });
  };
  for (const Tensor& tensor : layout.tensors) {
    if (tensor.offset == layout.word_embeddings || in_linear(tensor.offset)) continue;
    for (std::int64_t at = 0; at < tensor.count; at += kChunkElements) {
      const std::int64_t end = std::min(tensor.count, at + kChunkElements);
      tasks_.push_back({tensor.offset + at, tensor.offset + end, -1, 0, 0, tensor.decays, false});
    }
  }
  for (std::int64_t row = 0; row < model.config().vocab_size; row += kWordRows) {
    const std::int64_t end = std::min(model.config().vocab_size, row + kWordRows);
    tasks_.push_back({row, end, -1, 0, 0, true, true});
  }
}

template <typename Element>
void Optimizer<Element>::clear() {
  if (is_clear_) return;  // clearing gives the pages back
  is_clear_ = true;
  m_.clear();
  v_.clear();
  forget_idle_words();
}

template <typename Element>
double Optimizer<Element>::norm(std::span<const float> gradient) {
  const auto count = static_cast<std::int64_t>(gradient.size());
  const std::int64_t blocks = (count + kernels::kNormBlock - 1) / kernels::kNormBlock;
  block_sums_.resize(static_cast<std::size_t>(blocks));
  c_.pool.run(blocks, [&](std::int64_t block, int) {
    const std::int64_t begin = block * kernels::kNormBlock;
    block_sums_[static_cast<std::size_t>(block)] = c_.parameter_ops.sum_of_squares(
        gradient.data() + begin, std::min(kernels::kNormBlock, count - begin));
  });
  for (std::size_t width = 1; width < block_sums_.size(); width *= 2) {
    for (std::size_t i = 0; i + width < block_sums_.size(); i += 2 * width) {
      block_sums_[i] += block_sums_[i + width];
    }
  }
  return block_sums_.empty() ? 0.0 : std::sqrt(block_sums_[0]);
}

template <typename Element>
void Optimizer<Element>::update_word_embeddings(const Task& task, const kernels::AdamW& adamw,
                                                const float* gradient, const TouchedRows& touched) {
  const std::int64_t H = model_.config().hidden_size;
  const std::int64_t base = model_.layout().word_embeddings;
  const auto update = [&](std::int64_t row_begin, std::int64_t row_end, const float* g) {
    const std::int64_t at = base + row_begin * H;
    c_.parameter_ops.adamw(adamw, (row_end - row_begin) * H, g, model_.parameters().data() + at,
                           m_.data() + at, v_.data() + at);
  };
  auto next = std::lower_bound(touched.ids.begin(), touched.ids.end(), task.begin);
  const auto is_touched = [&](std::int64_t row) {
    return next != touched.ids.end() && *next == row;
  };
  const auto is_idle = [&](std::int64_t row) {
    return adamw.weight_decay == 0 && !is_touched(row) && has_zero_moments(row);
  };
  for (std::int64_t row = task.begin; row < task.end;) {
    std::int64_t last = row + 1;
    if (is_touched(row)) {
      update(row, last, gradient + base + (next - touched.ids.begin()) * H);
      words_[static_cast<std::size_t>(row)] = WordMoments::kNonZero;
      ++next;
    } else if (!is_idle(row)) {
      while (last < task.end && !is_touched(last) && !is_idle(last)) ++last;
      update(row, last, nullptr);
    }
    row = last;
  }
}

template <typename Element>
bool Optimizer<Element>::has_zero_moments(std::int64_t word) {
  WordMoments& known = words_[static_cast<std::size_t>(word)];
  if (known == WordMoments::kUnknown) {
    const std::int64_t H = model_.config().hidden_size;
    const std::int64_t at = model_.layout().word_embeddings + word * H;
    // Of the bits, because the update turns -0 into +0.
    const auto is_zero = [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; };
    const bool zero = std::all_of(m_.data() + at, m_.data() + at + H, is_zero) &&
                      std::all_of(v_.data() + at, v_.data() + at + H, is_zero);
    known = zero ? WordMoments::kZero : WordMoments::kNonZero;
  }
  return known == WordMoments::kZero;
}

template <typename Element>
double Optimizer<Element>::step(std::int64_t step, float learning_rate,
                                std::span<const float> gradient, const TouchedRows& touched) {
  TW_CHECK(static_cast<std::int64_t>(gradient.size()) == model_.gradient_count(touched.R()),
           "gradient of {} elements, expected {}", gradient.size(),
           model_.gradient_count(touched.R()));
  is_clear_ = false;
  const double norm_before = norm(gradient.first(gradient.size() - 1));
  kernels::AdamW adamw;
  adamw.learning_rate = learning_rate;
  adamw.beta1 = settings_.beta1;
  adamw.beta2 = settings_.beta2;
  adamw.epsilon = settings_.epsilon;
  // Computes powers by repeated squaring in double, so the result does not depend on libm.
  const auto power = [](double base, std::int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base) {
      if (exponent % 2 == 1) result *= base;
    }
    return result;
  };
  adamw.correction1 = static_cast<float>(1.0 - power(settings_.beta1, step));
  adamw.correction2 = static_cast<float>(1.0 - power(settings_.beta2, step));
  if (settings_.max_grad_norm > 0) {
    // Same formula as torch.nn.utils.clip_grad_norm_.
    adamw.gradient_scale =
        static_cast<float>(std::min(1.0, settings_.max_grad_norm / (norm_before + 1e-6)));
  }
  float* const values = model_.parameters().data();
  c_.pool.run(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t index, int) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    kernels::AdamW own = adamw;
    own.weight_decay = task.decays ? settings_.weight_decay : 0.0f;
    if (task.word_rows) {
      update_word_embeddings(task, own, gradient.data(), touched);
      return;
    }
    c_.parameter_ops.adamw(own, task.end - task.begin, gradient.data() + task.begin,
                           values + task.begin, m_.data() + task.begin, v_.data() + task.begin);
    if (task.linear >= 0) {
      model_.pack_rows(static_cast<std::size_t>(task.linear), task.row_begin, task.row_end);
    }
  });
  return norm_before;
}

template class Optimizer<float>;
template class Optimizer<bf16>;

}  // namespace tilewright::nn
