// Ends a training whose membership epochs all end before a step completes, for example because the
// workers cannot connect to each other. Otherwise it would never end, and nothing would report a
// failed job.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace tilewright::train {

class EpochLimit {
 public:
  // Both must be exceeded: several workers that are lost one after the other end some epochs within
  // seconds.
  static constexpr int kMaxEpochs = 20;
  static constexpr std::chrono::minutes kMaxTime{10};

  // A membership epoch begins after `step` completed steps. Returns how long no step has been
  // completed if the limit is reached.
  std::optional<Duration> begin_epoch(std::int64_t step, MonotonicTime now) {
    if (epochs_ == 0 || step != step_) {
      step_ = step;
      since_ = now;
      epochs_ = 0;
    }
    ++epochs_;
    const Duration time = now - since_;
    if (epochs_ <= kMaxEpochs || time < kMaxTime) return std::nullopt;
    return time;
  }
  int epochs() const { return epochs_; }  // since the last completed step

 private:
  std::int64_t step_ = 0;
  MonotonicTime since_{};
  int epochs_ = 0;
};

}  // namespace tilewright::train
