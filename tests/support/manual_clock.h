// A clock that advances only when a test advances it.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "common/base/clock.h"

namespace tilewright::testing {

class ManualClock final : public Clock {
 public:
  MonotonicTime now() const override {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  void advance(Duration duration) {
    {
      const std::scoped_lock lock(mutex_);
      now_ += duration;
    }
    const std::scoped_lock lock(wake_mutex_);
    for (const auto& [owner, wake] : wakes_) wake();
  }
  void subscribe(const void* owner, std::function<void()> wake) override {
    const std::scoped_lock lock(wake_mutex_);
    wakes_[owner] = std::move(wake);
  }
  void unsubscribe(const void* owner) override {
    const std::scoped_lock lock(wake_mutex_);
    wakes_.erase(owner);
  }

 private:
  mutable std::mutex mutex_;
  MonotonicTime now_ = monotonic_now();
  std::mutex wake_mutex_;  // held while the callbacks run
  std::map<const void*, std::function<void()>> wakes_;
};

}  // namespace tilewright::testing
