#include "worker/checkpoint/state_copy.h"

#include <unistd.h>

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

StateCopy::StateCopy(std::size_t elements)
    : vectors_{runtime::Buffer<float>(elements), runtime::Buffer<float>(elements),
               runtime::Buffer<float>(elements)} {}

void StateCopy::touch_pages() {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / sizeof(float);
  for (const runtime::Buffer<float>& vector : vectors_) {
    for (std::size_t at = 0; at < vector.size(); at += page) {
      if (stopped_.load(std::memory_order_relaxed)) return;
      *const_cast<volatile float*>(vector.data() + at) = 0;
    }
  }
}

void StateCopy::take(const StateVectors& from, runtime::ThreadPool& pool,
                     const kernels::ParameterOps& ops) {
  const std::span<const float> sources[] = {from.weights, from.exp_avg, from.exp_avg_sq};
  for (const std::span<const float> source : sources) {
    TW_CHECK(source.size() == vectors_[0].size(), "copy of {} elements, expected {}", source.size(),
             vectors_[0].size());
  }
  const auto count = static_cast<std::int64_t>(vectors_[0].size());
  const std::int64_t chunks = (count + kChunkElements - 1) / kChunkElements;
  pool.run(3 * chunks, [&](std::int64_t task, int) {
    const auto vector = static_cast<std::size_t>(task / chunks);
    const std::int64_t begin = task % chunks * kChunkElements;
    ops.copy(sources[vector].data() + begin, std::min(kChunkElements, count - begin),
             vectors_[vector].data() + begin);
  });
}

TrainingTensors StateCopy::tensors(const nn::ParameterLayout& layout) const {
  return {tensor_views(layout, vectors_[0].data()), tensor_views(layout, vectors_[1].data()),
          tensor_views(layout, vectors_[2].data())};
}

}  // namespace tilewright::checkpoint
