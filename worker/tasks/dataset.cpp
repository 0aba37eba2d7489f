#include "worker/tasks/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/result.h"
#include "worker/runtime/parallel.h"

namespace tilewright::tasks {

std::span<const std::int32_t> Dataset::ids_of(std::size_t example) const {
  return std::span(ids).subspan(static_cast<std::size_t>(offsets[example]), length(example));
}

std::span<const std::int32_t> Dataset::types_of(std::size_t example) const {
  return std::span(types).subspan(static_cast<std::size_t>(offsets[example]), length(example));
}

nn::Target Dataset::target_of(std::size_t example) const {
  nn::Target target;
  if (!labels.empty()) target.label = labels[example];
  if (!last_labels.empty()) target.last = last_labels[example];
  if (!values.empty()) target.value = values[example];
  return target;
}

void Dataset::append(const text::Encoding& encoding) {
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  types.insert(types.end(), encoding.types.begin(), encoding.types.end());
  offsets.push_back(static_cast<std::int64_t>(ids.size()));
}

void Dataset::append_all(std::size_t count, runtime::ThreadPool* pool,
                         const std::function<text::Encoding(std::size_t)>& encode) {
  constexpr std::size_t kChunk = 64;  // examples that a thread takes at a time
  std::vector<text::Encoding> encodings(count);
  runtime::for_each_index(pool, static_cast<std::int64_t>((count + kChunk - 1) / kChunk),
                          [&](std::int64_t chunk) {
                            const auto begin = static_cast<std::size_t>(chunk) * kChunk;
                            const std::size_t end = std::min(begin + kChunk, count);
                            for (std::size_t i = begin; i < end; ++i) encodings[i] = encode(i);
                          });
  std::size_t tokens = ids.size();
  for (const text::Encoding& encoding : encodings) tokens += encoding.ids.size();
  ids.reserve(tokens);
  types.reserve(tokens);
  for (const text::Encoding& encoding : encodings) append(encoding);
}

void check_ids(const Dataset& dataset, std::int64_t vocab_size, const std::string& config) {
  for (std::size_t example = 0; example < dataset.size(); ++example) {
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
