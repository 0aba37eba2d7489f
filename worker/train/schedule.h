// The number of optimizer steps and the learning rate of each, computed as by Hugging Face's
// Trainer.
#pragma once

#include <cstdint>

#include "common/contract/training_flags.h"

namespace tilewright::train {

enum class Decay { kLinear, kConstant };

struct Schedule {
  std::int64_t steps_per_epoch = 0;  // ceil(examples / global batch): the last batch may be short
  std::int64_t total_steps = 0;      // max_steps, or ceil(epochs * steps_per_epoch)
  std::int64_t warmup_steps = 0;     // warmup_steps, or ceil(warmup_ratio * total_steps)
  double peak = 0;                   // learning rate after the warm-up
  Decay decay = Decay::kLinear;

  // Learning rate of step `step`, counted from 0: it rises linearly during the warm-up, then falls
  // linearly to 0 at total_steps or stays constant.
  double learning_rate(std::int64_t step) const;
};

Schedule make_schedule(const TrainingSettings& settings, std::int64_t examples,
                       std::int64_t global_batch);

}  // namespace tilewright::train
