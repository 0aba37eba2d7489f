// Random numbers that spread retries in time; nothing hangs on their quality.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <random>

namespace tilewright::kube {

// In [0, 1). Thread-safe when made by random_jitter(); tests pass a constant.
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
