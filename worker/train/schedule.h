// The number of optimizer steps, the learning rate of each, and the steps between log lines,
// evaluations and checkpoints, computed as by Hugging Face's Trainer.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/contract/training_flags.h"

namespace tilewright::train {

// The learning rate after the warm-up, named as in transformers.
enum class Decay { kLinear, kConstant, kCosine, kCosineWithRestarts, kPolynomial };

struct Schedule {
  // ceil(examples / global batch): the last batch may be short.
  std::int64_t steps_per_epoch = 0;
  // Micro-batches of all processes in an epoch, and in each of its steps but a shorter last one.
  std::int64_t micro_batches_per_epoch = 0;
  std::int64_t micro_batches_per_step = 1;
  std::int64_t total_steps = 0;   // max_steps, or ceil(epochs * steps_per_epoch)
  std::int64_t warmup_steps = 0;  // warmup_steps, or ceil(warmup_ratio * total_steps)
  // Steps between log lines, evaluations and checkpoints: the settings, of which a fraction is
  // ceil(fraction * total_steps), as in TrainerState.compute_steps(). 0: never.
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  double peak = 0;  // learning rate after the warm-up
  Decay decay = Decay::kLinear;

  // Learning rate of step `step`, counted from 0. It rises linearly during the warm-up. Formulas:
  // transformers.get_scheduler() with its default parameters (half a cosine, one cycle of the
  // cosine with restarts, a polynomial of power 1 that ends at 1e-7).
  double learning_rate(std::int64_t step) const;

  // Epochs of data that `steps` steps have taken. Like the Trainer it counts micro-batches, so with
  // gradient accumulation a shorter last step of an epoch is a smaller part of it. For a training.
  double epoch_after(std::int64_t steps) const;

  // Whether something happens after `step` steps: with the strategy "steps" every `interval` steps,
  // with "epoch" at the end of each epoch and of the training, with any other never.
  bool is_due(std::string_view strategy, std::int64_t interval, std::int64_t step) const;
  // Whether that is so for a step from `step` on, at least 1, and before the last one.
  bool is_due_before_end(std::string_view strategy, std::int64_t interval, std::int64_t step) const;
};

// Examples of an epoch: all, or with dataloader_drop_last only those of complete batches of all
// workers, without regard to gradient accumulation.
std::int64_t examples_per_epoch(const TrainingSettings& settings, std::int64_t examples,
                                std::int64_t global_batch);

Schedule make_schedule(const TrainingSettings& settings, std::int64_t examples,
                       std::int64_t global_batch);

}  // namespace tilewright::train
