#include "controller/client/retry.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {
namespace {

bool is_retryable(const ApiError& error, RetrySafety retry_safety) {
  switch (error.kind) {
    case ErrorKind::kTooManyRequests:
      return true;
    case ErrorKind::kServer:
    case ErrorKind::kServerTimeout:
      return retry_safety == RetrySafety::kAlways;
    case ErrorKind::kTransport:
    case ErrorKind::kTimedOut:
      return retry_safety == RetrySafety::kAlways || !error.maybe_applied;
    default:
      return false;
  }
}

// first * 2^doublings, at most `max`; half of the delay is random.
Duration exponential_delay(Duration first, Duration max, int doublings, double jitter) {
  Duration delay = first;
  for (int i = 0; i < doublings && delay < max; ++i) delay *= 2;
  delay = std::min(delay, max);
  return delay / 2 + std::chrono::duration_cast<Duration>(delay / 2 * jitter);
}

}  // namespace

std::optional<Duration> retry_delay(const RetryPolicy& policy, const ApiError& error,
                                    RetrySafety retry_safety, int attempts, double jitter) {
  if (attempts >= policy.attempts || !is_retryable(error, retry_safety)) return std::nullopt;
  const Duration delay =
      exponential_delay(policy.initial_delay, policy.max_delay, attempts - 1, jitter);
  return std::max(delay, error.retry_after.value_or(Duration::zero()));
}

ReflectorBackoff::ReflectorBackoff(Duration initial_delay, Duration max_delay, Jitter jitter)
    : initial_delay_(initial_delay), max_delay_(max_delay), jitter_(std::move(jitter)) {}

Duration ReflectorBackoff::after(const ApiError& error) {
  Duration delay = Duration::zero();
  if (error.kind == ErrorKind::kGone) {
    failures_ = 0;
    if (++expiries_ > 1) delay = this->delay(expiries_ - 2);
  } else {
    delay = this->delay(failures_++);
  }
  return std::max(delay, error.retry_after.value_or(Duration::zero()));
}

void ReflectorBackoff::reset() { failures_ = expiries_ = 0; }

Duration ReflectorBackoff::delay(int doublings) const {
  return exponential_delay(initial_delay_, max_delay_, doublings, jitter_());
}

}  // namespace tilewright::kube
