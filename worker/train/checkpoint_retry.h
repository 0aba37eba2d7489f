// When a checkpoint that could not be written is tried again. The training continues meanwhile:
// while the storage is full or unavailable, a crash loses at most the steps since the last
// checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace tilewright::train {

class CheckpointRetry {
 public:
  // A failed checkpoint is also tried again at the next one that save_strategy asks for.
  static constexpr std::chrono::seconds kDelay{60};

  void succeeded() { retry_at_.reset(); }
  void failed(MonotonicTime now) {
    ++failures_;
    retry_at_ = now + kDelay;
  }
  bool due(MonotonicTime now) const { return retry_at_ && now >= *retry_at_; }
  std::int64_t failures() const { return failures_; }  // of this process

 private:
  std::int64_t failures_ = 0;
  std::optional<MonotonicTime> retry_at_;
};

}  // namespace tilewright::train
