#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"
#include "common/contract/training_checks.h"

namespace tilewright::train {
namespace {

Decay decay_of(std::string_view name) {
  if (name == "linear") return Decay::kLinear;
  if (name == "constant" || name == "constant_with_warmup") return Decay::kConstant;
  if (name == "cosine") return Decay::kCosine;
  if (name == "cosine_with_restarts") return Decay::kCosineWithRestarts;
  if (name == "polynomial") return Decay::kPolynomial;
  TW_CHECK(false, "unknown lr_scheduler_type {}", name);
}

// A number of steps, or the steps of a fraction below 1.
std::int64_t count_steps(double setting, std::int64_t total_steps) {
  if (setting < 1) setting = std::ceil(static_cast<double>(total_steps) * std::max(setting, 0.0));
  return static_cast<std::int64_t>(setting);
}

// Examples in a micro-batch of all processes.
std::int64_t micro_batch_size(const TrainingSettings& settings, std::int64_t global_batch) {
  return global_batch / settings.gradient_accumulation_steps;
}

// One half of a cosine: 1 at 0, 0 at 1.
double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

}  // namespace

double Schedule::learning_rate(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * (static_cast<double>(step) /
                   static_cast<double>(std::max<std::int64_t>(1, warmup_steps)));
  }
  const auto span = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double progress = static_cast<double>(step - warmup_steps) / span;
  switch (decay) {
    case Decay::kConstant:
      return peak;
    case Decay::kLinear:
      return peak * std::max(0.0, static_cast<double>(total_steps - step) / span);
    case Decay::kCosine:
      return peak * std::max(0.0, half_cosine(progress));
    case Decay::kCosineWithRestarts:
      return progress >= 1 ? 0 : peak * std::max(0.0, half_cosine(std::fmod(progress, 1.0)));
    case Decay::kPolynomial:
      return step > total_steps ? kPolynomialEnd
                                : (peak - kPolynomialEnd) * (1 - progress) + kPolynomialEnd;
  }
  TW_CHECK(false, "unknown decay {}", static_cast<int>(decay));
}

double Schedule::epoch_after(std::int64_t steps) const {
  const std::int64_t epochs = steps / steps_per_epoch;
  const std::int64_t micro_batches = steps % steps_per_epoch * micro_batches_per_step;
  return static_cast<double>(epochs) +
         static_cast<double>(micro_batches) / static_cast<double>(micro_batches_per_epoch);
}

bool Schedule::is_due(std::string_view strategy, std::int64_t interval, std::int64_t step) const {
  if (strategy == "steps") return interval > 0 && step % interval == 0;
  return strategy == "epoch" && (step % steps_per_epoch == 0 || step == total_steps);
}

bool Schedule::is_due_before_end(std::string_view strategy, std::int64_t interval,
                                 std::int64_t step) const {
  const std::int64_t every = strategy == "steps"   ? interval
                             : strategy == "epoch" ? steps_per_epoch
                                                   : 0;
  return every > 0 && (step + every - 1) / every * every < total_steps;
}

std::int64_t examples_per_epoch(const TrainingSettings& settings, std::int64_t examples,
                                std::int64_t global_batch) {
  if (!settings.dataloader_drop_last) return examples;
  return examples - examples % micro_batch_size(settings, global_batch);
}

Schedule make_schedule(const TrainingSettings& settings, std::int64_t examples,
                       std::int64_t global_batch) {
  const std::int64_t used = examples_per_epoch(settings, examples, global_batch);
  Schedule schedule;
  const std::int64_t micro_batch = micro_batch_size(settings, global_batch);
  schedule.steps_per_epoch = (used + global_batch - 1) / global_batch;
  schedule.micro_batches_per_epoch = (used + micro_batch - 1) / micro_batch;
  schedule.micro_batches_per_step = settings.gradient_accumulation_steps;
  schedule.total_steps =
      settings.max_steps > 0
          ? settings.max_steps
          : static_cast<std::int64_t>(std::ceil(settings.num_train_epochs *
                                                static_cast<double>(schedule.steps_per_epoch)));
  schedule.warmup_steps =
      settings.warmup_steps >= 1
          ? static_cast<std::int64_t>(settings.warmup_steps)
          : static_cast<std::int64_t>(std::ceil(
                (settings.warmup_steps > 0 ? settings.warmup_steps : settings.warmup_ratio) *
                static_cast<double>(schedule.total_steps)));
  // As in transformers, only the others have a warm-up.
  if (settings.lr_scheduler_type == "constant") schedule.warmup_steps = 0;
  schedule.logging_steps = count_steps(settings.logging_steps, schedule.total_steps);
  schedule.eval_steps = count_steps(settings.eval_steps, schedule.total_steps);
  schedule.save_steps = count_steps(settings.save_steps, schedule.total_steps);
  schedule.peak = settings.learning_rate;
  schedule.decay = decay_of(settings.lr_scheduler_type);
  return schedule;
}

}  // namespace tilewright::train
