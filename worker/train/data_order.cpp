#include "worker/train/data_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace tilewright::train {

DataOrder::DataOrder(std::int64_t examples, std::int64_t global_batch, std::uint64_t seed)
    : global_batch_(global_batch),
      seed_(seed),
      steps_per_epoch_((examples + global_batch - 1) / global_batch),
      order_(static_cast<std::size_t>(examples)) {
  TW_CHECK(examples > 0 && global_batch > 0, "{} examples in batches of {}", examples,
           global_batch);
}

// Fisher-Yates with SplitMix64. The bound is taken by multiplication (Lemire, 2019, without the
// rejection: a bias below 2^-32 for any data set that fits in memory).
void DataOrder::shuffle(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  std::uint64_t state = seed_ * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(epoch) + 1;
  const auto next = [&state] {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[(next() >> 32) * i >> 32]);
  }
  epoch_ = epoch;
}

std::span<const std::int32_t> DataOrder::batch(std::int64_t step) {
  const std::int64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) shuffle(epoch);
  const std::int64_t begin = step % steps_per_epoch_ * global_batch_;
  const auto end =
      std::min<std::int64_t>(begin + global_batch_, static_cast<std::int64_t>(order_.size()));
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(end - begin));
}

}  // namespace tilewright::train
