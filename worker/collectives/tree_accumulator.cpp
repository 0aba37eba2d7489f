#include "worker/collectives/tree_accumulator.h"

#include <algorithm>
#include <utility>

#include "worker/collectives/sum.h"

namespace tilewright::collectives {
namespace {

struct BufferPlan {
  std::vector<int> buffer_of_micro_batch;
  std::vector<bool> is_final_part;  // by micro-batch: its buffer holds a part at the end
  int buffers = 0;
};

// A micro-batch takes the lowest free buffer. A buffer becomes free after the micro-batch in which
// it was merged into its left sibling.
BufferPlan plan_buffers(std::span<const Subtree> micro_batches, std::span<const Merge> merges) {
  BufferPlan buffer_plan;
  buffer_plan.is_final_part.assign(micro_batches.size(), true);
  std::vector<bool> taken;
  auto merge = merges.begin();
  for (std::size_t micro_batch = 0; micro_batch < micro_batches.size(); ++micro_batch) {
    const auto free = static_cast<std::size_t>(std::ranges::find(taken, false) - taken.begin());
    if (free == taken.size()) taken.push_back(true);
    taken[free] = true;
    buffer_plan.buffer_of_micro_batch.push_back(static_cast<int>(free));
    for (; merge != merges.end() && merge->after == static_cast<int>(micro_batch); ++merge) {
      const auto right = static_cast<std::size_t>(merge->right);
      taken[static_cast<std::size_t>(buffer_plan.buffer_of_micro_batch[right])] = false;
      buffer_plan.is_final_part[right] = false;
    }
  }
  buffer_plan.buffers = std::max(1, static_cast<int>(taken.size()));
  return buffer_plan;
}

}  // namespace

int TreeAccumulator::buffers_needed(std::span<const Subtree> micro_batches) {
  return plan_buffers(micro_batches, merges_of(micro_batches)).buffers;
}

TreeAccumulator::TreeAccumulator(std::vector<Subtree> micro_batches, std::int64_t count,
                                 std::vector<float*> buffers, std::int64_t bf16_count)
    : micro_batches_(std::move(micro_batches)),
      count_(count),
      buffers_(std::move(buffers)),
      merges_(merges_of(micro_batches_)) {
  const BufferPlan buffer_plan = plan_buffers(micro_batches_, merges_);
  TW_CHECK(static_cast<int>(buffers_.size()) >= buffer_plan.buffers,
           "{} buffers given, {} needed for {} micro-batches", buffers_.size(), buffer_plan.buffers,
           micro_batches_.size());
  buffer_of_micro_batch_ = buffer_plan.buffer_of_micro_batch;
  parts_.count = count_;
  parts_.bf16_count = bf16_count;
  for (int micro_batch = 0; micro_batch <= static_cast<int>(micro_batches_.size()); ++micro_batch) {
    first_merge_.push_back(static_cast<int>(
        std::ranges::lower_bound(merges_, micro_batch, {}, &Merge::after) - merges_.begin()));
  }
  for (std::size_t micro_batch = 0; micro_batch < micro_batches_.size(); ++micro_batch) {
    if (!buffer_plan.is_final_part[micro_batch]) continue;
    Subtree whole = micro_batches_[micro_batch];
    for (const Merge& merge : merges_) {
      if (merge.left == static_cast<int>(micro_batch)) whole.size *= 2;
    }
    parts_.parts.push_back(
        {whole, buffers_[static_cast<std::size_t>(buffer_of_micro_batch_[micro_batch])]});
  }
  parts_.sum = parts_.parts.empty() ? buffers_.front() : parts_.parts.front().data;
}

void TreeAccumulator::begin_step() {
  TW_CHECK(!in_micro_batch_, "begin_step() inside micro-batch {}", micro_batch_);
  micro_batch_ = -1;
}

std::span<float> TreeAccumulator::begin_micro_batch() {
  TW_CHECK(!in_micro_batch_ && !is_last_micro_batch(),
           "begin_micro_batch() after micro-batch {} of {}{}", micro_batch_ + 1,
           micro_batches_.size(), in_micro_batch_ ? ", which has not ended" : "");
  ++micro_batch_;
  in_micro_batch_ = true;
  finished_.store(0, std::memory_order_relaxed);
  const auto micro_batch = static_cast<std::size_t>(micro_batch_);
  return {buffers_[static_cast<std::size_t>(buffer_of_micro_batch_[micro_batch])],
          static_cast<std::size_t>(count_)};
}

void TreeAccumulator::finish(Range elements) {
  TW_CHECK(in_micro_batch_ && 0 <= elements.begin && elements.begin <= elements.end &&
               elements.end <= count_,
           "finish({}, {}) of {} elements{}", elements.begin, elements.end, count_,
           in_micro_batch_ ? "" : " outside a micro-batch");
  const auto micro_batch = static_cast<std::size_t>(micro_batch_);
  const auto data_of = [this, &elements](int index) {
    const int buffer = buffer_of_micro_batch_[static_cast<std::size_t>(index)];
    return buffers_[static_cast<std::size_t>(buffer)] + elements.begin;
  };
  const Precision precision = precision_of(parts_, elements);
  if (precision == Precision::kBf16) round_to_bf16(data_of(micro_batch_), elements.size());
  for (int i = first_merge_[micro_batch]; i < first_merge_[micro_batch + 1]; ++i) {
    const Merge& merge = merges_[static_cast<std::size_t>(i)];
    add(precision, data_of(merge.left), data_of(merge.left), data_of(merge.right), elements.size());
  }
  finished_.fetch_add(elements.size(), std::memory_order_relaxed);
}

void TreeAccumulator::end_micro_batch() {
  TW_CHECK(in_micro_batch_ && finished_.load() == count_,
           "end_micro_batch() with {} of {} elements finished", finished_.load(), count_);
  in_micro_batch_ = false;
}

}  // namespace tilewright::collectives
