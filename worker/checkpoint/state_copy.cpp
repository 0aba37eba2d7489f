#include "worker/checkpoint/state_copy.h"

#include <algorithm>

#include "common/base/check.h"

namespace tilewright::checkpoint {
namespace {

// 1 MiB per task: the threads of the pool end at about the same time.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 18;

}  // namespace

std::vector<TensorView> tensor_views(const nn::ParameterLayout& layout, float* base) {
  std::vector<TensorView> views;
  views.reserve(layout.tensors.size());
  for (const nn::Tensor& tensor : layout.tensors) {
    views.push_back({tensor.name, tensor.shape, base + tensor.offset});
  }
  return views;
}

TrainingTensors training_tensors(const nn::ParameterLayout& layout, float* weights, float* exp_avg,
                                 float* exp_avg_sq) {
  return {tensor_views(layout, weights), tensor_views(layout, exp_avg),
          tensor_views(layout, exp_avg_sq)};
}

TrainingTensors tensors_to_write(const nn::ParameterLayout& layout, const StateVectors& state) {
  const auto base = [](std::span<const float> vector) { return const_cast<float*>(vector.data()); };
  return training_tensors(layout, base(state.weights), base(state.exp_avg), base(state.exp_avg_sq));
}

StateCopy::StateCopy(std::size_t elements)
    : vectors_{runtime::Buffer<float>(elements), runtime::Buffer<float>(elements),
               runtime::Buffer<float>(elements)} {}

void StateCopy::touch_pages() {
  for (const runtime::Buffer<float>& vector : vectors_) {
    for (auto left = vector.bytes(); !left.empty();) {
      if (stopped_.load(std::memory_order_relaxed)) return;
      const auto piece = left.first(std::min(left.size(), runtime::kHugePage));
      runtime::touch_pages(piece);
      left = left.subspan(piece.size());
    }
  }
}

void StateCopy::take(const StateVectors& from, runtime::ThreadPool& pool,
                     const kernels::ParameterOps& ops) {
  const std::span<const float> sources[] = {from.weights, from.exp_avg, from.exp_avg_sq};
  for (std::size_t i = 0; i < std::size(sources); ++i) {
    const std::span<const float> source = sources[i];
    runtime::Buffer<float>& copy = vectors_[i];
    TW_CHECK(source.size() == copy.size(), "copy of {} elements, expected {}", source.size(),
             copy.size());
    pool.for_ranges(static_cast<std::int64_t>(source.size()), kChunkElements,
                    [&](std::int64_t begin, std::int64_t end) {
                      ops.copy(source.data() + begin, end - begin, copy.data() + begin);
                    });
  }
}

TrainingTensors StateCopy::tensors(const nn::ParameterLayout& layout) const {
  return training_tensors(layout, vectors_[0].data(), vectors_[1].data(), vectors_[2].data());
}

}  // namespace tilewright::checkpoint
