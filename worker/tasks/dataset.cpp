#include "worker/tasks/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/result.h"

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

void check_ids(const Dataset& dataset, std::int64_t vocab_size) {
  for (std::size_t example = 0; example < dataset.size(); ++example) {
    for (const std::int32_t id : dataset.ids_of(example)) {
      if (id >= 0 && id < vocab_size) continue;
      throw Failure(ExitCode::kData,
                    fmt::format("example {} has the token id {}, expected ids below the model's "
                                "vocab_size {}: tokenizer and model do not belong together",
                                example, id, vocab_size));
    }
  }
}

}  // namespace tilewright::tasks
