// Whether a failed request is sent again, a watch begun again, and after how long. Pure.
#pragma once

#include <optional>

#include "common/base/clock.h"
#include "controller/kube/api_error.h"
#include "controller/kube/jitter.h"

namespace tilewright::kube {

struct RetryPolicy {
  int attempts = 6;  // in all
  Duration first_delay = std::chrono::milliseconds(100);
  Duration most_delay = std::chrono::seconds(5);
};

// How far a request may be sent again without doing harm.
enum class Repeatable {
  // Reads, and writes whose second execution changes nothing or is refused: creates of a fixed
  // name, updates and deletes with preconditions, apply and merge patches.
  kYes,
  // Only when the server cannot have acted on it: generateName, JSON patches.
  kIfUntouched,
  // The same, and 429 is an answer and no delay: evictions.
  kIfUntouchedAndNotRefused,
};

// The delay before attempt number `attempts` + 1, or nothing. `jitter` in [0, 1): half of a delay
// is random, so that clients which failed together do not come back together.
std::optional<Duration> retry_delay(const RetryPolicy& policy, const ApiError& error,
                                    Repeatable repeatable, int attempts, double jitter);

// How long a reflector waits before it goes on after a failure.
class ReflectorBackoff {
 public:
  ReflectorBackoff(Duration first_delay, Duration most_delay, Jitter jitter);
  // A version that has expired (410) is the usual end of a long absence and needs a list at once,
  // whatever failed before it: the server is there. Only the next ones in a row wait.
  Duration after(const ApiError& error);
  void went_well();

 private:
  Duration delay(int doublings) const;

  const Duration first_delay_, most_delay_;
  const Jitter jitter_;
  int failures_ = 0;  // in a row, as below
  int expiries_ = 0;
};

}  // namespace tilewright::kube
