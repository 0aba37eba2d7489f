// Exponential back-off per key: the delay doubles with each failure and is reset on success.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace tilewright::workqueue {

struct BackoffLimits {
  Duration initial = std::chrono::milliseconds(5);
  Duration max = std::chrono::seconds(1000);
};

// Not thread-safe: WorkQueue holds its lock around it.
class Backoff {
 public:
  // `jitter` returns numbers in [0, 1) and extends a delay by up to 10 %, so that keys which failed
  // together are not retried together. Empty: no jitter.
  explicit Backoff(BackoffLimits limits = {}, std::function<double()> jitter = {});

  // Counts a failure and returns the delay before the next attempt. The n-th call (from 0) returns
  // initial * 2^n, at most `max`.
  Duration next(const std::string& key);
  void forget(const std::string& key) { failures_.erase(key); }

 private:
  BackoffLimits limits_;
  std::function<double()> jitter_;
  std::map<std::string, std::size_t> failures_;
};

}  // namespace tilewright::workqueue
