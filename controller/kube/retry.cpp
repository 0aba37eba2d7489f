// 429 and what the server cannot have acted on is always safe to repeat; the rest hangs on the
// verb.
#include "controller/kube/retry.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {
namespace {

bool worth_repeating(const ApiError& error, Repeatable repeatable) {
  switch (error.problem) {
    case Problem::kTooManyRequests:
      return repeatable != Repeatable::kIfUntouchedAndNotRefused;
    case Problem::kServer:
    case Problem::kServerTimeout:
      return repeatable == Repeatable::kYes;
    case Problem::kTransport:
    case Problem::kTimedOut:
      return repeatable == Repeatable::kYes || !error.maybe_applied;
    default:
      return false;
  }
}

// Half of it is random.
Duration doubled(Duration first, Duration most, int times, double jitter) {
  Duration delay = first;
  for (int i = 0; i < times && delay < most; ++i) delay *= 2;
  delay = std::min(delay, most);
  return delay / 2 + std::chrono::duration_cast<Duration>(delay / 2 * jitter);
}

}  // namespace

std::optional<Duration> retry_delay(const RetryPolicy& policy, const ApiError& error,
                                    Repeatable repeatable, int attempts, double jitter) {
  if (attempts >= policy.attempts || !worth_repeating(error, repeatable)) return std::nullopt;
  const Duration delay = doubled(policy.first_delay, policy.most_delay, attempts - 1, jitter);
  return std::max(delay, error.retry_after.value_or(Duration::zero()));
}

ReflectorBackoff::ReflectorBackoff(Duration first_delay, Duration most_delay, Jitter jitter)
    : first_delay_(first_delay), most_delay_(most_delay), jitter_(std::move(jitter)) {}

Duration ReflectorBackoff::after(const ApiError& error) {
  Duration delay = Duration::zero();
  if (error.problem == Problem::kGone) {
    failures_ = 0;
    if (++expiries_ > 1) delay = this->delay(expiries_ - 2);
  } else {
    delay = this->delay(failures_++);
  }
  return std::max(delay, error.retry_after.value_or(Duration::zero()));
}

void ReflectorBackoff::went_well() { failures_ = expiries_ = 0; }

Duration ReflectorBackoff::delay(int doublings) const {
  return doubled(first_delay_, most_delay_, doublings, jitter_());
}

}  // namespace tilewright::kube
