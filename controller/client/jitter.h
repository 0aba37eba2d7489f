// Random numbers that spread retries over time. They need not be cryptographically secure.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <random>

namespace tilewright::kube {

// Returns a number in [0, 1). random_jitter() is thread-safe; tests pass a constant.
using Jitter = std::function<double()>;

inline Jitter random_jitter() {
  struct Source {
    std::mutex mutex;
    std::minstd_rand engine{std::random_device()()};
  };
  return [source = std::make_shared<Source>()] {
    const std::lock_guard lock(source->mutex);
    return std::uniform_real_distribution<double>(0.0, 1.0)(source->engine);
  };
}

}  // namespace tilewright::kube
