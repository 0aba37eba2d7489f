// 429 and what the server cannot have acted on is always safe to repeat; the rest hangs on the
// verb.
#include "controller/kube/retry.h"

#include <algorithm>

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

}  // namespace

std::optional<Duration> retry_delay(const RetryPolicy& policy, const ApiError& error,
                                    Repeatable repeatable, int attempts, double jitter) {
  if (attempts >= policy.attempts || !worth_repeating(error, repeatable)) return std::nullopt;
  Duration delay = policy.first_delay;
  for (int i = 1; i < attempts && delay < policy.most_delay; ++i) delay *= 2;
  delay = std::min(delay, policy.most_delay);
  delay = delay / 2 + std::chrono::duration_cast<Duration>(delay / 2 * jitter);
  return std::max(delay, error.retry_after.value_or(Duration::zero()));
}

}  // namespace tilewright::kube
