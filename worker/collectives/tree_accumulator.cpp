#include "worker/collectives/tree_accumulator.h"

#include <algorithm>
#include <utility>

#include "worker/collectives/sum.h"

namespace tilewright::collectives {
namespace {

struct Placement {
  std::vector<int> buffer_of_pass;
  std::vector<bool> remains;  // of each pass: its buffer holds a part at the end
  int buffers = 0;
};

// A pass takes the lowest free buffer; a buffer is free again after the pass in which it was merged
// into its left sibling.
Placement place(std::span<const Subtree> passes, std::span<const Merge> merges) {
  Placement placement;
  placement.remains.assign(passes.size(), true);
  std::vector<bool> taken;
  auto merge = merges.begin();
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    const auto free = static_cast<std::size_t>(std::ranges::find(taken, false) - taken.begin());
    if (free == taken.size()) taken.push_back(true);
    taken[free] = true;
    placement.buffer_of_pass.push_back(static_cast<int>(free));
    for (; merge != merges.end() && merge->after == static_cast<int>(pass); ++merge) {
      const auto right = static_cast<std::size_t>(merge->right);
      taken[static_cast<std::size_t>(placement.buffer_of_pass[right])] = false;
      placement.remains[right] = false;
    }
  }
  placement.buffers = std::max(1, static_cast<int>(taken.size()));
  return placement;
}

}  // namespace

int TreeAccumulator::buffers_needed(std::span<const Subtree> passes) {
  return place(passes, merges_of(passes)).buffers;
}

TreeAccumulator::TreeAccumulator(std::vector<Subtree> passes, std::int64_t count)
    : passes_(std::move(passes)), count_(count) {
  for (int i = 0; i < buffers_needed(passes_); ++i) {
    owned_.emplace_back(static_cast<std::size_t>(count));
    buffers_.push_back(owned_.back().data());
  }
  plan();
}

TreeAccumulator::TreeAccumulator(std::vector<Subtree> passes, std::int64_t count,
                                 std::vector<float*> buffers)
    : passes_(std::move(passes)), count_(count), buffers_(std::move(buffers)) {
  plan();
}

void TreeAccumulator::plan() {
  merges_ = merges_of(passes_);
  const Placement placement = place(passes_, merges_);
  TW_CHECK(static_cast<int>(buffers_.size()) >= placement.buffers,
           "{} buffers given, {} needed for {} passes", buffers_.size(), placement.buffers,
           passes_.size());
  buffer_of_pass_ = placement.buffer_of_pass;
  parts_.count = count_;
  for (int pass = 0; pass <= static_cast<int>(passes_.size()); ++pass) {
    first_merge_.push_back(static_cast<int>(
        std::ranges::lower_bound(merges_, pass, {}, &Merge::after) - merges_.begin()));
  }
  for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
    if (!placement.remains[pass]) continue;
    Subtree whole = passes_[pass];
    for (const Merge& merge : merges_) {
      if (merge.left == static_cast<int>(pass)) whole.size *= 2;
    }
    parts_.parts.push_back({whole, buffers_[static_cast<std::size_t>(buffer_of_pass_[pass])]});
  }
  parts_.sum = parts_.parts.empty() ? buffers_.front() : parts_.parts.front().data;
}

void TreeAccumulator::begin_step() {
  TW_CHECK(!in_pass_, "begin_step() inside pass {}", pass_);
  pass_ = -1;
}

std::span<float> TreeAccumulator::begin_pass() {
  TW_CHECK(!in_pass_ && !last_pass(), "begin_pass() after pass {} of {}{}", pass_ + 1,
           passes_.size(), in_pass_ ? ", which has not ended" : "");
  ++pass_;
  in_pass_ = true;
  finished_.store(0, std::memory_order_relaxed);
  const auto pass = static_cast<std::size_t>(pass_);
  return {buffers_[static_cast<std::size_t>(buffer_of_pass_[pass])],
          static_cast<std::size_t>(count_)};
}

void TreeAccumulator::finish(Range elements) {
  TW_CHECK(
      in_pass_ && 0 <= elements.begin && elements.begin <= elements.end && elements.end <= count_,
      "finish({}, {}) of {} elements{}", elements.begin, elements.end, count_,
      in_pass_ ? "" : " outside a pass");
  const auto pass = static_cast<std::size_t>(pass_);
  const auto data_of = [this, &elements](int of_pass) {
    const int buffer = buffer_of_pass_[static_cast<std::size_t>(of_pass)];
    return buffers_[static_cast<std::size_t>(buffer)] + elements.begin;
  };
  for (int i = first_merge_[pass]; i < first_merge_[pass + 1]; ++i) {
    const Merge& merge = merges_[static_cast<std::size_t>(i)];
    add(data_of(merge.left), data_of(merge.left), data_of(merge.right), elements.size());
  }
  finished_.fetch_add(elements.size(), std::memory_order_relaxed);
}

void TreeAccumulator::end_pass() {
  TW_CHECK(in_pass_ && finished_.load() == count_, "end_pass() with {} of {} elements finished",
           finished_.load(), count_);
  in_pass_ = false;
}

}  // namespace tilewright::collectives
