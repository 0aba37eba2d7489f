// How long a key that keeps failing is left alone: doubling per failure, forgotten on success.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace tilewright::queue {

struct BackoffLimits {
  Duration first = std::chrono::milliseconds(5);
  Duration most = std::chrono::seconds(1000);
};

// Not thread-safe: WorkQueue holds its lock around it.
class Backoff {
 public:
  // `jitter` returns numbers in [0, 1) and stretches a delay by up to a tenth, so that keys which
  // failed together do not come back together. Empty: delays are exact.
  explicit Backoff(BackoffLimits limits = {}, std::function<double()> jitter = {});

  // The delay before the next attempt; counts one more failure. The n-th call (from 0) gives
  // first * 2^n, at most `most`.
  Duration next(const std::string& key);
  void forget(const std::string& key) { failures_.erase(key); }
  std::size_t failures(const std::string& key) const;
  std::size_t remembered() const { return failures_.size(); }

 private:
  BackoffLimits limits_;
  std::function<double()> jitter_;
  std::map<std::string, std::size_t> failures_;
};

}  // namespace tilewright::queue
