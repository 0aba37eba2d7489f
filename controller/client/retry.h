// Decides whether and after what delay a failed request or watch is retried. Pure functions.
#pragma once

#include <optional>

#include "common/base/clock.h"
#include "controller/client/api_error.h"
#include "controller/client/jitter.h"

namespace tilewright::kube {

struct RetryPolicy {
  int attempts = 6;  // including the first
  Duration initial_delay = std::chrono::milliseconds(100);
  Duration max_delay = std::chrono::seconds(5);
};

// When a request may safely be sent again.
enum class RetrySafety {
  // Always: reads, and writes whose second execution is rejected or changes nothing: creates with a
  // fixed name, updates and deletes with preconditions, apply and merge patches.
  kAlways,
  // Only if the server cannot have processed the request: generateName, deletions without a UID.
  kIfNotProcessed,
};

// The delay before attempt number `attempts` + 1, or std::nullopt for no retry. `jitter` is in
// [0, 1). Half of the delay is random, so that clients do not retry at the same time.
std::optional<Duration> retry_delay(const RetryPolicy& policy, const ApiError& error,
                                    RetrySafety retry_safety, int attempts, double jitter);

// The delays of a reflector after failures.
class ReflectorBackoff {
 public:
  ReflectorBackoff(Duration initial_delay, Duration max_delay, Jitter jitter);
  // An expired version (410) shows that the server is reachable and a list is needed, so the delay
  // of the first one is zero, even after other failures. Consecutive ones are delayed.
  Duration after(const ApiError& error);
  void reset();

 private:
  Duration delay(int doublings) const;

  const Duration initial_delay_, max_delay_;
  const Jitter jitter_;
  int failures_ = 0;  // consecutive
  int expiries_ = 0;  // consecutive
};

}  // namespace tilewright::kube
