#include "worker/train/output_retry.h"

#include <algorithm>

namespace tilewright::train {

void retry_while_unavailable(const std::function<void()>& use, const OutputRetry& retry) {
  Duration waited{};
  for (Duration delay = kFirstOutputRetry;; delay *= 2) {
    try {
      return use();
    } catch (const Failure& failure) {
      if (failure.code() != ExitCode::kOutputUnavailable || waited >= kOutputRetryTimeout) throw;
      delay = std::min<Duration>(delay, kOutputRetryTimeout - waited);
      retry.warn(fmt::format("{}; trying again in {} s", failure.what(),
                             std::chrono::ceil<std::chrono::seconds>(delay).count()));
      if (!retry.wait(delay)) throw;
    }
    waited += delay;
  }
}

}  // namespace tilewright::train
