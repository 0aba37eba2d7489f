#include "worker/train/data_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::train {

DataOrder::DataOrder(DataOrderOptions options)
    : options_(std::move(options)),
      steps_per_epoch_((options_.examples_per_epoch + options_.global_batch - 1) /
                       options_.global_batch),
      order_(static_cast<std::size_t>(options_.examples)) {
  TW_CHECK(options_.examples_per_epoch > 0 && options_.examples_per_epoch <= options_.examples &&
               options_.global_batch > 0,
           "{} of {} examples in batches of {}", options_.examples_per_epoch, options_.examples,
           options_.global_batch);
  TW_CHECK(options_.lengths.empty() || options_.lengths.size() == order_.size(),
           "{} lengths of {} examples", options_.lengths.size(), order_.size());
}

// Fisher-Yates shuffle. A random number below i is drawn by multiplication (Lemire, 2019) without
// the rejection step, which leaves a bias below i * 2^-32.
void DataOrder::shuffle(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  // Seeds are mixed first: as states, neighbouring seeds would give the same stream, shifted.
  runtime::SplitMix64 random(runtime::SplitMix64::nth(options_.seed, 1) +
                             static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[(random.next() >> 32) * i >> 32]);
  }
  if (!options_.lengths.empty()) group_by_length();
  epoch_ = epoch;
}

void DataOrder::group_by_length() {
  const auto length = [&](std::int32_t example) {
    return options_.lengths[static_cast<std::size_t>(example)];
  };
  const std::int64_t batches =
      std::clamp<std::int64_t>(options_.examples / (options_.global_batch * 4), 1, 50);
  const auto group = static_cast<std::size_t>(batches * options_.global_batch);
  for (std::size_t begin = 0; begin < order_.size(); begin += group) {
    const std::size_t end = std::min(order_.size(), begin + group);
    std::stable_sort(order_.begin() + static_cast<std::ptrdiff_t>(begin),
                     order_.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::int32_t a, std::int32_t b) { return length(a) > length(b); });
  }
  // The largest batch first, so that a lack of memory shows at the first step.
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < order_.size(); begin += group) {
    if (length(order_[begin]) > length(order_[longest])) longest = begin;
  }
  std::swap(order_[0], order_[longest]);
}

std::span<const std::int32_t> DataOrder::batch(std::int64_t step) {
  const std::int64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) shuffle(epoch);
  const std::int64_t begin = step % steps_per_epoch_ * options_.global_batch;
  const auto end = std::min(begin + options_.global_batch, options_.examples_per_epoch);
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(end - begin));
}

}  // namespace tilewright::train
