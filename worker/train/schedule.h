// How long a training runs and which learning rate each step has, as Hugging Face's Trainer counts.
#pragma once

#include <cstdint>

namespace tilewright::train {

enum class Decay { kLinear, kConstant };

struct Schedule {
  std::int64_t steps_per_epoch = 0;  // ceil(examples / global batch): the last batch may be short
  std::int64_t total_steps = 0;      // max_steps, or ceil(epochs * steps_per_epoch)
  std::int64_t warmup_steps = 0;     // warmup_steps, or ceil(warmup_ratio * total_steps)
  double peak = 0;
  Decay decay = Decay::kLinear;

  // Of the update number `step`, counted from 0: rises linearly over the warm-up, then falls
  // linearly to 0 at total_steps (or stays).
  double learning_rate(std::int64_t step) const;
};

struct ScheduleSettings {
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;  // overrides the epochs when positive
  double warmup_ratio = 0;
  std::int64_t warmup_steps = 0;  // overrides the ratio when positive
  double learning_rate = 5e-5;
  Decay decay = Decay::kLinear;
};

Schedule make_schedule(const ScheduleSettings& settings, std::int64_t examples,
                       std::int64_t global_batch);

}  // namespace tilewright::train
