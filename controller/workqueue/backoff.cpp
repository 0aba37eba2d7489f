#include "controller/workqueue/backoff.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tilewright::workqueue {

Backoff::Backoff(BackoffLimits limits, std::function<double()> jitter)
    : limits_(limits), jitter_(std::move(jitter)) {
  TW_CHECK(limits_.initial > Duration::zero() && limits_.initial <= limits_.max,
           "the initial delay must be positive and not above the maximum");
}

Duration Backoff::next(const std::string& key) {
  const std::size_t failures = failures_[key]++;
  Duration delay = limits_.initial;
  for (std::size_t i = 0; i < failures && delay < limits_.max; ++i) {
    delay = delay > limits_.max / 2 ? limits_.max : delay * 2;
  }
  delay = std::min(delay, limits_.max);
  if (!jitter_) return delay;
  return delay + std::chrono::duration_cast<Duration>(delay * (jitter_() * 0.1));
}

}  // namespace tilewright::workqueue
