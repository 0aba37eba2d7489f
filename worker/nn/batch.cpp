#include "worker/nn/batch.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace tilewright::nn {

void RowIndex::build(std::span<const std::int32_t> ids, std::int64_t begin, std::int64_t end,
                     const std::int32_t* row_of_id, std::int64_t rows, std::int32_t without) {
  row_offsets.assign(static_cast<std::size_t>(rows) + 1, 0);
  occurrences.resize(static_cast<std::size_t>(end - begin));
  const auto row = [&](std::int64_t t) {
    return static_cast<std::size_t>(row_of_id[ids[static_cast<std::size_t>(t)]]);
  };
  const auto counts = [&](std::int64_t t) { return ids[static_cast<std::size_t>(t)] != without; };
  for (auto t = begin; t < end; ++t) {
    if (counts(t)) row_offsets[row(t)]++;
  }
  std::partial_sum(row_offsets.begin(), row_offsets.end(), row_offsets.begin());
  // At this point row_offsets[r] is the end of row r. Filling from the back lists each row's tokens
  // in ascending order and turns the ends into beginnings; the last entry remains the token count.
  for (auto t = end; t-- > begin;) {
    if (!counts(t)) continue;
    occurrences[static_cast<std::size_t>(--row_offsets[row(t)])] = static_cast<std::int32_t>(t);
  }
}

void Batch::clear() {
  for (auto* list : {&ids, &types, &positions, &token_example, &example, &labels, &last_labels,
                     &lengths, &scored, &first_positions}) {
    list->clear();
  }
  values.clear();
  cu_seqlens.assign(1, 0);
  max_seqlen = 0;
  groups.clear();
}

void Batch::add(std::span<const std::int32_t> example_ids, std::size_t first_segment,
                const Target& target, std::int32_t index_in_global_batch, const Padding& padding) {
  TW_CHECK(first_segment <= example_ids.size() && !example_ids.empty(),
           "{} tokens of type 0 in an example of {}", first_segment, example_ids.size());
  ids.insert(ids.end(), example_ids.begin(), example_ids.end());
  types.insert(types.end(), first_segment, 0);
  types.insert(types.end(), example_ids.size() - first_segment, 1);
  const auto rows = std::max(example_ids.size(),
                             static_cast<std::size_t>(std::max<std::int64_t>(padding.length, 0)));
  ids.insert(ids.end(), rows - example_ids.size(), padding.id);
  types.insert(types.end(), rows - example_ids.size(), 0);
  for (std::size_t i = 0; i < rows; ++i) {
    positions.push_back(static_cast<std::int32_t>(i));
    token_example.push_back(index_in_global_batch);
  }
  example.push_back(index_in_global_batch);
  labels.push_back(target.label);
  last_labels.push_back(target.last);
  values.push_back(target.value);
  lengths.push_back(static_cast<std::int32_t>(example_ids.size()));
  scored.push_back(static_cast<std::int32_t>(padding.in_loss ? rows : example_ids.size()));
  first_positions.push_back(0);
  cu_seqlens.push_back(static_cast<std::int32_t>(ids.size()));
  max_seqlen = std::max(max_seqlen, static_cast<std::int64_t>(rows));
}

kernels::RowIdentity Batch::identity(Rows rows) const {
  if (rows == Rows::kTokens) return {token_example.data(), positions.data()};
  return {example.data(), first_positions.data()};
}

void Batch::open_group(std::int64_t first_shard) {
  groups.push_back({first_shard,
                    {static_cast<std::int32_t>(example.size())},
                    {static_cast<std::int32_t>(ids.size())}});
}

void Batch::close_shard() {
  TW_CHECK(!groups.empty(), "close_shard before open_group");
  groups.back().example_offsets.push_back(static_cast<std::int32_t>(example.size()));
  groups.back().token_offsets.push_back(static_cast<std::int32_t>(ids.size()));
}

}  // namespace tilewright::nn
