// The doubling, without overflow.
#include "controller/queue/backoff.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tilewright::queue {

Backoff::Backoff(BackoffLimits limits, std::function<double()> jitter)
    : limits_(limits), jitter_(std::move(jitter)) {
  TW_CHECK(limits_.first > Duration::zero() && limits_.first <= limits_.most,
           "a back-off runs from a positive delay up to a longer one");
}

Duration Backoff::next(const std::string& key) {
  const std::size_t failures = failures_[key]++;
  Duration delay = limits_.first;
  for (std::size_t i = 0; i < failures && delay < limits_.most; ++i) {
    delay = delay > limits_.most / 2 ? limits_.most : delay * 2;
  }
  delay = std::min(delay, limits_.most);
  if (!jitter_) return delay;
  return delay + std::chrono::duration_cast<Duration>(delay * (jitter_() * 0.1));
}

std::size_t Backoff::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace tilewright::queue
