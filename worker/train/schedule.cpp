#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>

namespace tilewright::train {

double Schedule::learning_rate(std::int64_t step) const {
  const auto at = static_cast<double>(step);
  if (step < warmup_steps)
    return peak * at / static_cast<double>(std::max<std::int64_t>(1, warmup_steps));
  if (decay == Decay::kConstant) return peak;
  const auto left = static_cast<double>(total_steps - step);
  const auto span = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  return peak * std::max(0.0, left / span);
}

Schedule make_schedule(const TrainingSettings& settings, std::int64_t examples,
                       std::int64_t global_batch) {
  Schedule schedule;
  schedule.steps_per_epoch = (examples + global_batch - 1) / global_batch;
  schedule.total_steps =
      settings.max_steps > 0
          ? settings.max_steps
          : static_cast<std::int64_t>(std::ceil(settings.num_train_epochs *
                                                static_cast<double>(schedule.steps_per_epoch)));
  schedule.warmup_steps =
      settings.warmup_steps > 0
          ? settings.warmup_steps
          : static_cast<std::int64_t>(
                std::ceil(settings.warmup_ratio * static_cast<double>(schedule.total_steps)));
  schedule.peak = settings.learning_rate;
  schedule.decay = settings.lr_scheduler_type == "constant" ? Decay::kConstant : Decay::kLinear;
  return schedule;
}

}  // namespace tilewright::train
