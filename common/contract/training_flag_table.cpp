// The table of training flags.
#include <array>

#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"

namespace tilewright {
namespace {

using enum FlagType;

TrainingFlag boolean(std::string_view name, bool value, std::string_view help) {
  return {.name = name, .type = kBool, .default_value = value ? "true" : "false", .help = help};
}

TrainingFlag integer(std::string_view name, std::string_view value, double minimum, double maximum,
                     std::string_view help) {
  return {.name = name,
          .type = kInt,
          .default_value = value,
          .minimum = minimum,
          .maximum = maximum,
          .help = help};
}

TrainingFlag number(std::string_view name, std::string_view value, double minimum, double maximum,
                    std::string_view help) {
  return {.name = name,
          .type = kFloat,
          .default_value = value,
          .minimum = minimum,
          .maximum = maximum,
          .help = help};
}

TrainingFlag text(std::string_view name, std::string_view value, std::string_view help) {
  return {.name = name, .type = kString, .default_value = value, .help = help};
}

TrainingFlag choice(std::string_view name, std::vector<std::string_view> choices,
                    std::string_view value, std::string_view help) {
  return {.name = name,
          .type = kChoice,
          .default_value = value,
          .choices = std::move(choices),
          .help = help};
}

TrainingFlag below_maximum(TrainingFlag flag) {
  flag.below_maximum = true;
  return flag;
}

TrainingFlag or_minus_one(TrainingFlag flag) {
  flag.or_minus_one = true;
  return flag;
}

TrainingFlag by_runtime(TrainingFlag flag) {
  flag.set_by_runtime = true;
  return flag;
}

TrainingFlag dropout(std::string_view name, std::string_view help) {
  return or_minus_one(below_maximum(number(name, "-1", 0, 1, help)));
}

}  // namespace

std::span<const TrainingFlag> training_flags() {
  static const std::array kFlags = {
      // What to train on what.
      choice("task_name", {"cola", "mrpc", "rte", "sst2"}, "", "the GLUE task"),
      text("model_name_or_path", "", "folder of the pre-trained model, Hugging Face's layout"),
      text("data_dir", "", "folder with the task's train and dev files"),
      text("output_dir", "", "folder for checkpoints, the model and its results"),
      boolean("do_train", true, "train"),
      boolean("do_eval", true, "evaluate on the dev file, after training if there is any"),
      or_minus_one(
          integer("max_train_samples", "-1", 1, kUnbounded, "use the first so many rows; -1: all")),
      or_minus_one(
          integer("max_eval_samples", "-1", 1, kUnbounded, "use the first so many rows; -1: all")),
      // Input.
      integer("max_seq_length", "128", 4, 8192,
              "tokens an example is cut to, [CLS] and [SEP] included"),
      boolean("pad_to_max_length", false,
              "compute every example at max_seq_length tokens, to see what that costs"),
      integer("per_device_train_batch_size", "8", 1, 65536, "examples a process takes at once"),
      integer("per_device_eval_batch_size", "8", 1, 65536, "examples a process evaluates at once"),
      integer("gradient_accumulation_steps", "1", 1, 65536, "such batches before a step"),
      // Optimization.
      number("learning_rate", "5e-05", 0, 100, "peak learning rate of AdamW"),
      number("weight_decay", "0", 0, 100, "decay of all weights but biases and layer norms"),
      below_maximum(number("adam_beta1", "0.9", 0, 1, "decay of AdamW's first moment")),
      below_maximum(number("adam_beta2", "0.999", 0, 1, "decay of AdamW's second moment")),
      number("adam_epsilon", "1e-08", 1e-30, 1, "AdamW's epsilon"),
      number("max_grad_norm", "1", 0, kUnbounded,
             "gradients are scaled down to this norm; 0: never"),
      number("num_train_epochs", "3", 0, 1e6, "passes over the training data, fractions allowed"),
      or_minus_one(integer("max_steps", "-1", 1, kUnbounded,
                           "optimizer steps; -1: as num_train_epochs says")),
      choice("lr_scheduler_type", {"linear", "constant"}, "linear",
             "decay to zero, or none, after the warm-up"),
      number("warmup_ratio", "0", 0, 1, "share of all steps that the learning rate rises for"),
      integer("warmup_steps", "0", 0, kUnbounded,
              "steps that it rises for; 0: as warmup_ratio says"),
      dropout("hidden_dropout_prob", "dropout of hidden states; -1: the model's"),
      dropout("attention_probs_dropout_prob", "dropout of attention weights; -1: the model's"),
      dropout("classifier_dropout", "dropout before the classifier; -1: the model's"),
      integer("seed", "42", 0, 4294967295, "seed of the order of examples and of dropout"),
      or_minus_one(integer("init_seed", "-1", 0, 4294967295,
                           "seed of weights the model folder lacks; -1: as seed")),
      // Checkpoints, results, log.
      integer("logging_steps", "10", 1, kUnbounded, "steps between lines of progress"),
      boolean("logging_first_step", false, "a line after the first step too"),
      choice("save_strategy", {"no", "steps", "epoch"}, "steps", "when to write a checkpoint"),
      integer("save_steps", "500", 1, kUnbounded, "steps between checkpoints"),
      integer("save_total_limit", "2", 1, kUnbounded, "checkpoints kept, the oldest goes first"),
      boolean("overwrite_output_dir", false, "replace the output of another job"),
      text("resume_from_checkpoint", "", "a checkpoint's folder; empty: this job's last, if any"),
      text("run_name", "", "a name for log and results"),
      choice("log_level", {"trace", "debug", "info", "warn", "error"}, "info", "what is logged"),
      // How it is computed.
      boolean("bf16", true, "compute in bfloat16 with fp32 masters; false: all in fp32"),
      boolean("exact", true, "the same bits for any number of workers and threads"),
      integer("virtual_shards", "0", 0, kMaxVirtualShards,
              "parts the global batch is cut into, a power of two; 0: chosen"),
      integer("threads", "0", 0, 4096, "threads a process; 0: its cores"),
      choice("gemm_backend", {"native", "onednn"}, "native", "who multiplies matrices"),
      by_runtime(
          integer("nominal_workers", "0", 0, 1e6,
                  "processes the global batch is reckoned for; 0: those there at the start")),
      by_runtime(integer("max_workers", "0", 0, 1e6,
                         "the most processes there will ever be; 0: nominal_workers")),
  };
  return kFlags;
}

}  // namespace tilewright
