#include "worker/train/settings.h"

#include "common/base/result.h"
#include "common/contract/virtual_shards.h"
#include "worker/collectives/shard_tree.h"
#include "worker/kernels/gemm/onednn.h"

namespace tilewright::train {
namespace {

std::optional<float> probability(const TrainingArguments& arguments, std::string_view name) {
  const double value = arguments.number(name);
  if (value < 0) return std::nullopt;
  return static_cast<float>(value);
}

SaveStrategy save_strategy(const std::string& text) {
  if (text == "epoch") return SaveStrategy::kEpoch;
  return text == "no" ? SaveStrategy::kNo : SaveStrategy::kSteps;
}

std::int64_t or_else(std::int64_t value, std::int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

}  // namespace

Settings make_settings(const TrainingArguments& a, std::int64_t world) {
  Settings s;
  s.task_name = a.text("task_name");
  s.model_dir = a.text("model_name_or_path");
  s.data_dir = a.text("data_dir");
  s.output_dir = a.text("output_dir");
  s.do_train = a.boolean("do_train");
  s.do_eval = a.boolean("do_eval");
  s.max_seq_length = a.integer("max_seq_length");
  s.pad_to_max_length = a.boolean("pad_to_max_length");
  s.per_device_train_batch_size = a.integer("per_device_train_batch_size");
  s.per_device_eval_batch_size = a.integer("per_device_eval_batch_size");
  s.schedule.num_train_epochs = a.number("num_train_epochs");
  s.schedule.max_steps = a.integer("max_steps");
  s.schedule.warmup_ratio = a.number("warmup_ratio");
  s.schedule.warmup_steps = a.integer("warmup_steps");
  s.schedule.learning_rate = a.number("learning_rate");
  s.schedule.decay = a.text("lr_scheduler_type") == "constant" ? Decay::kConstant : Decay::kLinear;
  s.adamw.beta1 = static_cast<float>(a.number("adam_beta1"));
  s.adamw.beta2 = static_cast<float>(a.number("adam_beta2"));
  s.adamw.epsilon = static_cast<float>(a.number("adam_epsilon"));
  s.adamw.weight_decay = static_cast<float>(a.number("weight_decay"));
  s.adamw.max_grad_norm = static_cast<float>(a.number("max_grad_norm"));
  s.logging_steps = a.integer("logging_steps");
  s.logging_first_step = a.boolean("logging_first_step");
  s.save_strategy = save_strategy(a.text("save_strategy"));
  s.save_steps = a.integer("save_steps");
  s.save_total_limit = static_cast<int>(a.integer("save_total_limit"));
  s.seed = static_cast<std::uint64_t>(a.integer("seed"));
  const std::int64_t init_seed = a.integer("init_seed");
  s.init_seed = init_seed < 0 ? s.seed : static_cast<std::uint64_t>(init_seed);
  s.bf16 = a.boolean("bf16");
  s.overwrite_output_dir = a.boolean("overwrite_output_dir");
  s.resume_from_checkpoint = a.text("resume_from_checkpoint");
  s.max_train_samples = a.integer("max_train_samples");
  s.max_eval_samples = a.integer("max_eval_samples");
  s.hidden_dropout_prob = probability(a, "hidden_dropout_prob");
  s.attention_probs_dropout_prob = probability(a, "attention_probs_dropout_prob");
  s.classifier_dropout = probability(a, "classifier_dropout");
  s.exact = a.boolean("exact");
  s.threads = static_cast<int>(a.integer("threads"));
  s.onednn = a.text("gemm_backend") == "onednn";
  for (const char* name : {"task_name", "model_name_or_path", "data_dir", "output_dir"}) {
    if (a.text(name).empty()) {
      throw Failure(ExitCode::kUsage, fmt::format("--{} is missing", name));
    }
  }
  if (s.onednn && s.exact && a.is_set("exact")) {
    throw Failure(ExitCode::kUsage,
                  "--gemm_backend=onednn with --exact=true: oneDNN promises no bits across numbers "
                  "of rows and threads, expected --exact=false");
  }
  if (s.onednn) s.exact = false;

  s.nominal_workers = or_else(a.integer("nominal_workers"), world);
  s.max_workers = std::max(or_else(a.integer("max_workers"), s.nominal_workers), s.nominal_workers);
  s.global_batch = global_batch_size(s.per_device_train_batch_size, s.nominal_workers,
                                     a.integer("gradient_accumulation_steps"));
  const std::int64_t wanted = a.integer("virtual_shards");
  s.virtual_shards = wanted > 0 ? wanted : choose_virtual_shards(s.global_batch, s.max_workers);
  if (const Status status = collectives::check_shards(
          static_cast<int>(s.virtual_shards), static_cast<int>(s.max_workers), s.global_batch);
      !status.ok()) {
    throw Failure(status.error());
  }
  return s;
}

void check_gemm_backend(const Settings& settings, runtime::Isa isa) {
  if (!settings.onednn || kernels::limit_onednn(isa, settings.bf16)) return;
  const bool other_type = settings.bf16 && isa != runtime::Isa::kRef;
  throw Failure(
      ExitCode::kUnsupported,
      fmt::format("--gemm_backend=onednn: found {} on {}, for which oneDNN has no kernels, "
                  "expected {}--gemm_backend=native or {} and up (TILEWRIGHT_ISA)",
                  settings.bf16 ? "bf16" : "fp32", runtime::name(isa),
                  other_type ? "--bf16=false, " : "", settings.bf16 ? "avx512" : "avx2"));
}

nlohmann::json fingerprint(const Settings& s) {
  nlohmann::json f;
  f["task_name"] = s.task_name;
  f["max_seq_length"] = s.max_seq_length;
  // Padding groups the terms of weight gradients otherwise: the same sums, other roundings.
  f["pad_to_max_length"] = s.pad_to_max_length;
  f["num_train_epochs"] = s.schedule.num_train_epochs;
  f["max_steps"] = s.schedule.max_steps;
  f["warmup_ratio"] = s.schedule.warmup_ratio;
  f["warmup_steps"] = s.schedule.warmup_steps;
  f["learning_rate"] = s.schedule.learning_rate;
  f["lr_scheduler_type"] = s.schedule.decay == Decay::kLinear ? "linear" : "constant";
  f["adam_beta1"] = s.adamw.beta1;
  f["adam_beta2"] = s.adamw.beta2;
  f["adam_epsilon"] = s.adamw.epsilon;
  f["weight_decay"] = s.adamw.weight_decay;
  f["max_grad_norm"] = s.adamw.max_grad_norm;
  f["seed"] = s.seed;
  f["init_seed"] = s.init_seed;
  f["bf16"] = s.bf16;
  f["exact"] = s.exact;
  f["gemm_backend"] = s.onednn ? "onednn" : "native";
  f["max_train_samples"] = s.max_train_samples;
  f["global_batch_size"] = s.global_batch;
  f["virtual_shards"] = s.virtual_shards;
  const auto probability = [](const std::optional<float>& p) { return p ? *p : -1.0f; };
  f["hidden_dropout_prob"] = probability(s.hidden_dropout_prob);
  f["attention_probs_dropout_prob"] = probability(s.attention_probs_dropout_prob);
  f["classifier_dropout"] = probability(s.classifier_dropout);
  return f;
}

}  // namespace tilewright::train
