#include "worker/tasks/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/result.h"
#include "common/base/sha256.h"
#include "worker/runtime/parallel.h"

namespace tilewright::tasks {

Dataset::Dataset(DatasetLists lists) {
  const auto kept = std::make_shared<const DatasetLists>(std::move(lists));
  ids = kept->ids;
  offsets = kept->offsets;
  first_segments = kept->first_segments;
  labels = kept->labels;
  last_labels = kept->last_labels;
  values = kept->values;
  storage = kept;
}

std::span<const std::int32_t> Dataset::ids_of(std::size_t example) const {
  return ids.subspan(static_cast<std::size_t>(offsets[example]), length(example));
}

nn::Target Dataset::target_of(std::size_t example) const {
  nn::Target target;
  if (!labels.empty()) target.label = labels[example];
  if (!last_labels.empty()) target.last = last_labels[example];
  if (!values.empty()) target.value = values[example];
  return target;
}

std::string Dataset::digest() const {
  Sha256 sha;
  const auto add = [&](const auto& list) {
    const std::uint64_t size = list.size();
    sha.update(&size, sizeof size);
    sha.update(list.data(), list.size_bytes());
  };
  add(ids);
  add(offsets);
  add(first_segments);
  add(labels);
  add(last_labels);
  add(values);
  return sha.hex();
}

void DatasetLists::append(const text::Encoding& encoding) {
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  first_segments.push_back(static_cast<std::int32_t>(encoding.first_segment));
  offsets.push_back(static_cast<std::int64_t>(ids.size()));
}

void DatasetLists::append_all(std::size_t count, runtime::ThreadPool* pool,
                              const std::function<text::Encoding(std::size_t)>& encode) {
  constexpr std::size_t kPartSize = 64;  // examples that a thread takes at a time
  std::vector<DatasetLists> parts((count + kPartSize - 1) / kPartSize);
  runtime::for_each_index(pool, std::ssize(parts), [&](std::int64_t part) {
    const auto begin = static_cast<std::size_t>(part) * kPartSize;
    const std::size_t end = std::min(begin + kPartSize, count);
    DatasetLists& made = parts[static_cast<std::size_t>(part)];
    for (std::size_t i = begin; i < end; ++i) made.append(encode(i));
  });
  std::size_t tokens = ids.size();
  for (const DatasetLists& part : parts) tokens += part.ids.size();
  ids.reserve(tokens);
  offsets.reserve(offsets.size() + count);
  first_segments.reserve(first_segments.size() + count);
  for (DatasetLists& part : parts) {
    const auto before = static_cast<std::int64_t>(ids.size());
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    first_segments.insert(first_segments.end(), part.first_segments.begin(),
                          part.first_segments.end());
    for (std::size_t i = 1; i < part.offsets.size(); ++i)
      offsets.push_back(before + part.offsets[i]);
    part = {};  // frees its memory
  }
}

void check_ids(const Dataset& dataset, std::int64_t vocab_size, std::int64_t type_vocab_size,
               const std::string& config) {
  for (std::size_t example = 0; example < dataset.size(); ++example) {
    if (type_vocab_size == 1 &&
        dataset.first_segment_of(example) < dataset.ids_of(example).size()) {
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: type_vocab_size is 1, expected at least 2, because example {} "
                                "has two texts",
                                config, example));
    }
    for (const std::int32_t id : dataset.ids_of(example)) {
      if (id >= 0 && id < vocab_size) continue;
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: vocab_size is {}, expected more than {}, the id of a token in "
                                "example {}: tokenizer and model do not belong together",
                                config, vocab_size, id, example));
    }
  }
}

}  // namespace tilewright::tasks
