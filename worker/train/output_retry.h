// Repeats an operation on the output directory for up to a minute while the storage is full or
// unavailable, because a failure would lose the model in memory.
#pragma once

#include <functional>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace tilewright::train {

inline constexpr std::chrono::seconds kFirstOutputRetry{1};  // then twice as long each time
inline constexpr std::chrono::seconds kOutputRetryTimeout{60};

struct OutputRetry {
  // Waits. False: give up, because the process must stop or the epoch has ended.
  std::function<bool(Duration)> wait;
  std::function<void(const std::string& message)> warn;
};

// Calls `use` until it throws no Failure(kOutputUnavailable), at most for kOutputRetryTimeout of
// waiting; then throws that Failure, which is retryable. Other Failures pass through.
void retry_while_unavailable(const std::function<void()>& use, const OutputRetry& retry);

}  // namespace tilewright::train
