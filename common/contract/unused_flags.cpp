#include "common/contract/unused_flags.h"

#include <string_view>
#include <utility>

#include "common/contract/flag_modifiers.h"

namespace tilewright {
namespace {

TrainingFlag without_effect(std::string_view name, FlagType type, std::string_view reason) {
  TrainingFlag flag{.name = name, .type = type, .member = std::monostate(), .help = reason};
  flag.accepted_without_effect = true;
  flag.minimum = -1;
  flag.maximum = kNoMaximum;
  return flag;
}

TrainingFlag without_effect(std::string_view name, std::vector<std::string_view> choices,
                            std::string_view reason) {
  TrainingFlag flag = without_effect(name, FlagType::kChoice, reason);
  flag.choices = std::move(choices);
  return flag;
}

TrainingFlag refused(std::string_view name, FlagType type, std::string_view reason) {
  TrainingFlag flag = without_effect(name, type, reason);
  flag.accepted_without_effect = false;
  flag.refused = true;
  return flag;
}

// `object`: the value in a TrainingArguments with defaults.
TrainingFlag refused(std::string_view name, std::string_view object, std::string_view reason) {
  TrainingFlag flag = refused(name, FlagType::kString, reason);
  flag.neutral_object = object;
  return flag;
}

// A boolean, or a string.
TrainingFlag value_optional(TrainingFlag flag) {
  flag.value_optional = true;
  return flag;
}

TrainingFlag takes_words(TrainingFlag flag) {
  flag.takes_words = true;
  return flag;
}

// A boolean in the scripts that have it; from_pretrained() also takes a token.
TrainingFlag use_auth_token() {
  TrainingFlag flag = without_effect(
      "use_auth_token", FlagType::kBool,
      "the token of HF_TOKEN or of the token file is always used; a value that is no boolean is "
      "that of token");
  flag.string_flag = "token";
  return secret(std::move(flag));
}

}  // namespace

std::vector<TrainingFlag> flags_without_effect() {
  using enum FlagType;
  constexpr std::string_view kCpu = "Tilewright computes on CPUs only";
  constexpr std::string_view kKernels = "the kernels are chosen by the CPU's instruction set";
  constexpr std::string_view kBatches = "batches are views of the data in memory";
  constexpr std::string_view kReports =
      "results are in the log, in trainer_state.json and at /metrics";
  constexpr std::string_view kNothingUploaded = "nothing is uploaded";
  constexpr std::string_view kMemory = "buffers are allocated once, at the start";
  constexpr std::string_view kRecomputation = "activations are recomputed in one way only";
  constexpr std::string_view kOneWriter = "only rank 0 logs and writes files";
  return {
      without_effect("use_cpu", kBool, kCpu),
      without_effect("no_cuda", kBool, kCpu),
      without_effect("tf32", kBool, kCpu),
      without_effect("use_ipex", kBool, kKernels),
      without_effect("jit_mode_eval", kBool, kKernels),
      without_effect("torch_compile", kBool, kKernels),
      without_effect("torch_compile_backend", kString, kKernels),
      without_effect("torch_compile_mode", kString, kKernels),
      without_effect("torchdynamo", kString, kKernels),
      without_effect("use_liger_kernel", kBool, kKernels),
      without_effect("half_precision_backend", {"auto", "cpu_amp"}, kKernels),
      without_effect("fp16_backend", {"auto", "cpu_amp"}, kKernels),
      without_effect("fp16_opt_level", kString, "fp16 is not supported"),
      without_effect("bf16_full_eval", kBool, "evaluation uses the precision of the training"),
      without_effect("ddp_find_unused_parameters", kBool, kOwnTransport),
      without_effect("ddp_bucket_cap_mb", kInt, kOwnTransport),
      without_effect("ddp_broadcast_buffers", kBool, kOwnTransport),
      without_effect("ddp_static_graph", kBool, kOwnTransport),
      without_effect("ddp_timeout", kInt, "each operation has its own timeout"),
      without_effect("local_rank", kInt, "the rank comes from the rendezvous"),
      differs(without_effect("optim", {"adamw_torch", "adamw_torch_fused", "adamw_hf"},
                             "all three are AdamW"),
              "The Trainer has some 40 optimizers, such as adafactor, sgd and lion. Only AdamW is "
              "implemented."),
      without_effect("enable_jit_checkpoint", kBool,
                     "SIGTERM always writes a checkpoint at the next step boundary"),
      without_effect("use_cache", kBool, "encoders have no cache of past states"),
      without_effect("full_determinism", kBool, "an exact training is deterministic"),
      without_effect("use_fast_tokenizer", kBool, "there is one tokenizer"),
      without_effect("trust_remote_code", kBool, "no code is loaded"),
      use_auth_token(),
      without_effect("save_safetensors", kBool, "weights are always written as safetensors"),
      without_effect("remove_unused_columns", kBool, "only the columns of the task are read"),
      without_effect("preprocessing_num_workers", kInt, "all threads of a worker tokenize"),
      without_effect("dataloader_num_workers", kInt, kBatches),
      without_effect("dataloader_prefetch_factor", kInt, kBatches),
      without_effect("dataloader_pin_memory", kBool, kBatches),
      without_effect("dataloader_persistent_workers", kBool, kBatches),
      without_effect("dataloader_in_order", kBool, kBatches),
      without_effect("dataloader_multiprocessing_context", kString, kBatches),
      without_effect("length_column_name", kString, "lengths are counted in tokens"),
      without_effect("gradient_checkpointing_kwargs", kString, kRecomputation),
      without_effect("activation_checkpointing_kwargs", kString, kRecomputation),
      without_effect("torch_empty_cache_steps", kInt, kMemory),
      without_effect("eval_accumulation_steps", kInt, kMemory),
      without_effect("auto_find_batch_size", kBool,
                     "a batch that does not fit into memory is refused at the start"),
      without_effect("skip_memory_metrics", kBool, "memory metrics are not reported"),
      without_effect("eval_do_concat_batches", kBool, "metrics are computed from all batches"),
      without_effect("eval_use_gather_object", kBool, kOwnTransport),
      without_effect("average_tokens_across_devices", kBool,
                     "the loss is the mean over the global batch"),
      value_optional(without_effect("include_num_input_tokens_seen", kString,
                                    "trainer_state.json always has num_input_tokens_seen")),
      without_effect("include_tokens_per_second", kBool, kReports),
      takes_words(without_effect("report_to", kString, kReports)),
      without_effect("logging_dir", kString, kReports),
      without_effect("disable_tqdm", kBool, "the progress bar is drawn on a terminal only"),
      without_effect("logging_nan_inf_filter", kBool,
                     "a loss that is not finite ends the training"),
      without_effect("log_level_replica", kString, kOneWriter),
      without_effect("log_on_each_node", kBool, kOneWriter),
      without_effect("save_on_each_node", kBool, kOneWriter),
      without_effect("project", kString, kReports),
      without_effect("trackio_space_id", kString, kReports),
      without_effect("trackio_bucket_id", kString, kReports),
      without_effect("trackio_static_space_id", kString, kReports),
      without_effect("hub_model_id", kString, kNothingUploaded),
      without_effect("hub_strategy", kString, kNothingUploaded),
      secret(without_effect("hub_token", kString, kNothingUploaded)),
      without_effect("hub_private_repo", kBool, kNothingUploaded),
      without_effect("hub_always_push", kBool, kNothingUploaded),
      without_effect("hub_revision", kString, kNothingUploaded),
      without_effect("push_to_hub_model_id", kString, kNothingUploaded),
      without_effect("push_to_hub_organization", kString, kNothingUploaded),
      secret(without_effect("push_to_hub_token", kString, kNothingUploaded)),
      without_effect("use_legacy_prediction_loop", kBool, "there is one prediction loop"),
      without_effect("restore_callback_states_from_checkpoint", kBool, "there are no callbacks"),
      without_effect("ray_scope", kString, "there is no hyper-parameter search"),
      without_effect("fsdp_min_num_params", kInt, "fsdp is not supported"),
      without_effect("fsdp_transformer_layer_cls_to_wrap", kString, "fsdp is not supported"),
      without_effect("tpu_num_cores", kInt, kCpu),
      without_effect("tpu_metrics_debug", kBool, kCpu),
      without_effect("use_mps_device", kBool, kCpu),
  };
}

std::vector<TrainingFlag> refused_flags() {
  using enum FlagType;
  return {
      refused("fp16", kBool, "use bf16, which needs no loss scaling"),
      refused("fp16_full_eval", kBool, "use bf16"),
      refused("push_to_hub", kBool,
              "the trainer does not upload; run `huggingface-cli upload` on output_dir"),
      refused("adafactor", kBool, "the optimizer is AdamW"),
      refused("optim_args", kString, "set adam_beta1, adam_beta2, adam_epsilon or weight_decay"),
      refused("optim_target_modules", kString, "all weights are trained"),
      refused("lr_scheduler_kwargs", kString, "schedulers have transformers' default parameters"),
      refused("deepspeed", kString, "workers exchange gradients with Tilewright's own transport"),
      refused("fsdp", kString, "each worker holds all weights"),
      refused("fsdp_config",
              R"({"min_num_params": 0, "xla": false, "xla_fsdp_v2": false,
                  "xla_fsdp_grad_ckpt": false})",
              "each worker holds all weights"),
      refused("accelerator_config",
              R"({"split_batches": false, "dispatch_batches": null, "even_batches": true,
                  "use_seedable_sampler": true, "non_blocking": false,
                  "gradient_accumulation_kwargs": null, "use_configured_state": false})",
              "Tilewright does not use accelerate"),
      refused("parallelism_config", kString, "Tilewright does not use accelerate"),
      refused("mp_parameters", kString, "Tilewright does not use SageMaker's model parallelism"),
      refused("liger_kernel_config", kString, "the kernels have no options"),
      refused("neftune_noise_alpha", kFloat, "noise on embeddings is not implemented"),
      refused("past_index", kInt, "encoders have no past states"),
      refused("debug", kString, "use --log_level=debug"),
      refused("eval_on_start", kBool,
              "evaluations start with the first step; `tilewright-worker eval` evaluates a trained "
              "model"),
      refused("eval_delay", kFloat, "evaluations start with the first step"),
      refused("save_only_model", kBool,
              "a checkpoint has the optimizer's state, from which workers resume"),
      refused("ignore_data_skip", kBool, "a resumed training continues at its next example"),
      refused("prediction_loss_only", kBool, "an evaluation computes the task's metrics"),
      refused("batch_eval_metrics", kBool, "metrics are computed from all batches at once"),
      refused("label_names", kString, "the task defines its labels"),
      refused("include_inputs_for_metrics", kBool, "the task defines its metrics"),
      refused("include_for_metrics", kString, "the task defines its metrics"),
  };
}

}  // namespace tilewright
