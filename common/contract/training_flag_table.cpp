// The table of training flags.
#include <fmt/format.h>

#include <array>
#include <type_traits>

#include "common/contract/tasks.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"

namespace tilewright {
namespace {

using Settings = TrainingSettings;

std::string default_of(const TrainingMember& member) {
  static const TrainingSettings kDefaults;
  return std::visit([](auto pointer) { return fmt::format("{}", kDefaults.*pointer); }, member);
}

TrainingFlag make_flag(std::string_view name, FlagType type, TrainingMember member,
                       std::string_view help) {
  TrainingFlag flag{.name = name, .type = type, .member = member, .help = help};
  flag.default_value = default_of(member);
  return flag;
}

TrainingFlag boolean(std::string_view name, bool Settings::*member, std::string_view help) {
  return make_flag(name, FlagType::kBool, member, help);
}

TrainingFlag integer(std::string_view name, std::int64_t Settings::*member, double minimum,
                     double maximum, std::string_view help) {
  TrainingFlag flag = make_flag(name, FlagType::kInt, member, help);
  flag.minimum = minimum;
  flag.maximum = maximum;
  return flag;
}

template <typename Floating>
TrainingFlag number(std::string_view name, Floating Settings::*member, double minimum,
                    double maximum, std::string_view help) {
  static_assert(std::is_floating_point_v<Floating>);
  TrainingFlag flag = make_flag(name, FlagType::kFloat, member, help);
  flag.minimum = minimum;
  flag.maximum = maximum;
  return flag;
}

TrainingFlag string(std::string_view name, std::string Settings::*member, std::string_view help) {
  return make_flag(name, FlagType::kString, member, help);
}

TrainingFlag choice(std::string_view name, std::string Settings::*member,
                    std::vector<std::string_view> choices, std::string_view help) {
  TrainingFlag flag = make_flag(name, FlagType::kChoice, member, help);
  flag.choices = std::move(choices);
  return flag;
}

TrainingFlag required(TrainingFlag flag) {
  flag.required = true;
  return flag;
}

TrainingFlag exclusive_maximum(TrainingFlag flag) {
  flag.exclusive_maximum = true;
  return flag;
}

TrainingFlag or_minus_one(TrainingFlag flag) {
  flag.allows_minus_one = true;
  return flag;
}

TrainingFlag set_by_runtime(TrainingFlag flag) {
  flag.set_by_runtime = true;
  return flag;
}

TrainingFlag determines_weights(TrainingFlag flag) {
  flag.determines_weights = true;
  return flag;
}

TrainingFlag dropout(std::string_view name, float Settings::*member, std::string_view help) {
  return determines_weights(or_minus_one(exclusive_maximum(number(name, member, 0, 1, help))));
}

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names;
  for (const TaskDescription& task : task_descriptions()) names.push_back(task.name);
  return names;
}

}  // namespace

std::span<const TrainingFlag> training_flags() {
  static const std::array kFlags = {
      // Task, model and data.
      required(determines_weights(
          choice("task_name", &Settings::task_name, task_names(), "GLUE task to train on"))),
      required(string("model_name_or_path", &Settings::model_name_or_path,
                      "directory of the pre-trained model, in Hugging Face's layout")),
      required(string("data_dir", &Settings::data_dir,
                      "directory with the task's training and evaluation files")),
      required(string("output_dir", &Settings::output_dir,
                      "directory for checkpoints, the trained model and its results")),
      boolean("do_train", &Settings::do_train, "train the model"),
      boolean("do_eval", &Settings::do_eval,
              "evaluate the model, after the training if there is one"),
      determines_weights(
          or_minus_one(integer("max_train_samples", &Settings::max_train_samples, 1, kNoMaximum,
                               "train on the first N rows only; -1: all rows"))),
      or_minus_one(integer("max_eval_samples", &Settings::max_eval_samples, 1, kNoMaximum,
                           "evaluate on the first N rows only; -1: all rows")),
      // Batches.
      determines_weights(integer("max_seq_length", &Settings::max_seq_length, 4, 8192,
                                 "truncate examples to this many tokens, [CLS] and [SEP] included; "
                                 "raise it for long texts (at most max_position_embeddings), lower "
                                 "it to save time and memory")),
      // Padding changes the order of summation of weight gradients and therefore their rounding.
      determines_weights(boolean("pad_to_max_length", &Settings::pad_to_max_length,
                                 "pad every example to max_seq_length tokens; slower, for "
                                 "comparisons")),
      integer("per_device_train_batch_size", &Settings::per_device_train_batch_size, 1, 65536,
              "examples per process and micro-batch in training"),
      integer("per_device_eval_batch_size", &Settings::per_device_eval_batch_size, 1, 65536,
              "examples per process and batch in evaluation"),
      integer("gradient_accumulation_steps", &Settings::gradient_accumulation_steps, 1, 65536,
              "micro-batches per optimizer step"),
      // Optimization.
      determines_weights(
          number("learning_rate", &Settings::learning_rate, 0, 100, "peak learning rate of AdamW")),
      determines_weights(number("weight_decay", &Settings::weight_decay, 0, 100,
                                "weight decay of AdamW; biases and layer norms have none")),
      determines_weights(exclusive_maximum(
          number("adam_beta1", &Settings::adam_beta1, 0, 1, "decay rate of AdamW's first moment"))),
      determines_weights(exclusive_maximum(number("adam_beta2", &Settings::adam_beta2, 0, 1,
                                                  "decay rate of AdamW's second moment"))),
      determines_weights(
          number("adam_epsilon", &Settings::adam_epsilon, 1e-30, 1, "epsilon of AdamW")),
      determines_weights(number("max_grad_norm", &Settings::max_grad_norm, 0, kNoMaximum,
                                "gradients are clipped to this norm; 0: no clipping")),
      determines_weights(number("num_train_epochs", &Settings::num_train_epochs, 0, 1e6,
                                "epochs to train; fractions are allowed")),
      determines_weights(
          or_minus_one(integer("max_steps", &Settings::max_steps, 1, kNoMaximum,
                               "optimizer steps to train; overrides num_train_epochs; -1: unset"))),
      determines_weights(choice("lr_scheduler_type", &Settings::lr_scheduler_type,
                                {"linear", "constant"},
                                "learning rate after the warm-up: linear decay to zero, or "
                                "constant")),
      determines_weights(number("warmup_ratio", &Settings::warmup_ratio, 0, 1,
                                "fraction of all steps in which the learning rate rises")),
      determines_weights(integer("warmup_steps", &Settings::warmup_steps, 0, kNoMaximum,
                                 "steps in which the learning rate rises; overrides warmup_ratio; "
                                 "0: unset")),
      dropout("hidden_dropout_prob", &Settings::hidden_dropout_prob,
              "dropout of hidden states; -1: as in the model's config.json"),
      dropout("attention_probs_dropout_prob", &Settings::attention_probs_dropout_prob,
              "dropout of attention probabilities; -1: as in the model's config.json"),
      dropout("classifier_dropout", &Settings::classifier_dropout,
              "dropout before the classifier; -1: as in the model's config.json"),
      determines_weights(integer("seed", &Settings::seed, 0, 4294967295,
                                 "random seed of the order of examples and of dropout")),
      determines_weights(or_minus_one(
          integer("init_seed", &Settings::init_seed, 0, 4294967295,
                  "random seed of weights that the model directory lacks; -1: the same as seed"))),
      // Logging and checkpoints.
      integer("logging_steps", &Settings::logging_steps, 1, kNoMaximum, "steps between log lines"),
      boolean("logging_first_step", &Settings::logging_first_step, "log the first step too"),
      choice("save_strategy", &Settings::save_strategy, {"no", "steps", "epoch"},
             "when to write a checkpoint"),
      integer("save_steps", &Settings::save_steps, 1, kNoMaximum,
              "steps between checkpoints with save_strategy steps"),
      integer("save_total_limit", &Settings::save_total_limit, 1, kNoMaximum,
              "checkpoints to keep; the oldest is deleted first"),
      boolean("overwrite_output_dir", &Settings::overwrite_output_dir,
              "replace the content of an output directory that belongs to another job"),
      string("resume_from_checkpoint", &Settings::resume_from_checkpoint,
             "checkpoint directory to resume from; empty: this job's newest checkpoint, if any"),
      string("run_name", &Settings::run_name,
             "name of the run in the log and in train_results.json"),
      choice("log_level", &Settings::log_level, {"trace", "debug", "info", "warn", "error"},
             "lowest level of messages to log"),
      // Computation.
      determines_weights(boolean("bf16", &Settings::bf16,
                                 "compute in bfloat16 with fp32 master weights; false: all in "
                                 "fp32, more precise but slower on CPUs with AVX512-BF16 or AMX")),
      determines_weights(boolean("exact", &Settings::exact,
                                 "bit-identical weights for any number of workers and threads")),
      determines_weights(integer("virtual_shards", &Settings::virtual_shards, 0, kMaxVirtualShards,
                                 "fixed parts of the global batch, a power of two, at least the "
                                 "number of processes; 0: automatic")),
      integer("threads", &Settings::threads, 0, 4096,
              "threads per process; 0: the cores available to the process"),
      determines_weights(choice("gemm_backend", &Settings::gemm_backend, {"native", "onednn"},
                                "GEMM backend of the linear layers; use onednn if "
                                "`tilewright-worker bench step` shows that it is faster on your "
                                "CPU; it turns exact off")),
      set_by_runtime(integer("nominal_workers", &Settings::nominal_workers, 0, 1e6,
                             "processes that the global batch size is computed for; 0: the number "
                             "at the start")),
      set_by_runtime(integer("max_workers", &Settings::max_workers, 0, 1e6,
                             "largest number of processes the job can have; 0: nominal_workers")),
  };
  return kFlags;
}

}  // namespace tilewright
