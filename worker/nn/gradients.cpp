#include "worker/nn/gradients.h"

#include <algorithm>

namespace tilewright::nn {

void TouchedRows::clear() {
  for (const std::int32_t id : ids) marked_[static_cast<std::size_t>(id)] = false;
  ids.clear();
}

void TouchedRows::mark(std::span<const std::int32_t> batch_ids) {
  for (const std::int32_t id : batch_ids) {
    if (marked_[static_cast<std::size_t>(id)]) continue;
    marked_[static_cast<std::size_t>(id)] = true;
    ids.push_back(id);
  }
}

void TouchedRows::finish() {
  std::sort(ids.begin(), ids.end());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    row_of_id[static_cast<std::size_t>(ids[row])] = static_cast<std::int32_t>(row);
  }
}

}  // namespace tilewright::nn
