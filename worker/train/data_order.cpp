#include "worker/train/data_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::train {

DataOrder::DataOrder(std::int64_t examples, std::int64_t global_batch, std::uint64_t seed)
    : global_batch_(global_batch),
      seed_(seed),
      steps_per_epoch_((examples + global_batch - 1) / global_batch),
      order_(static_cast<std::size_t>(examples)) {
  TW_CHECK(examples > 0 && global_batch > 0, "{} examples in batches of {}", examples,
           global_batch);
}

// Fisher-Yates shuffle. A random number below i is drawn by multiplication (Lemire, 2019) without
// the rejection step, which leaves a bias below i * 2^-32.
void DataOrder::shuffle(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  runtime::SplitMix64 random(seed_ * runtime::SplitMix64::kStep +
                             static_cast<std::uint64_t>(epoch) + 1);
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[(random.next() >> 32) * i >> 32]);
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
