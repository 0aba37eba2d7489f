// The table of training flags: those that work.
#include <fmt/format.h>

#include <type_traits>

#include "common/contract/flag_modifiers.h"
#include "common/contract/tasks.h"
#include "common/contract/training_flags.h"
#include "common/contract/unused_flags.h"
#include "common/contract/virtual_shards.h"

namespace tilewright {
namespace {

using Settings = TrainingSettings;

std::string default_of(const TrainingMember& member) {
  static const TrainingSettings kDefaults;
  return std::visit(
      [](auto pointer) {
        if constexpr (std::is_same_v<decltype(pointer), std::monostate>) {
          return std::string();
        } else {
          return fmt::format("{}", kDefaults.*pointer);
        }
      },
      member);
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

TrainingFlag alias(TrainingFlag flag, std::string_view name) {
  flag.aliases.push_back(name);
  return flag;
}

TrainingFlag volume_path(TrainingFlag flag) {
  flag.volume_path = true;
  return flag;
}

// A directory, or a name on the hub.
TrainingFlag hub_name(TrainingFlag flag) {
  flag.volume_path = true;
  flag.hub_name = true;
  return flag;
}

// The default is not a constant.
TrainingFlag default_is(TrainingFlag flag, std::string_view description) {
  flag.default_description = description;
  return flag;
}

TrainingFlag ignores_case(TrainingFlag flag) {
  flag.ignores_case = true;
  return flag;
}

TrainingFlag synonyms(TrainingFlag flag, std::vector<ChoiceSynonym> words) {
  flag.synonyms = std::move(words);
  return flag;
}

TrainingFlag of_run_qa(TrainingFlag flag) {
  flag.of_run_qa = true;
  return flag;
}

TrainingFlag exclusive_maximum(TrainingFlag flag) {
  flag.exclusive_maximum = true;
  return flag;
}

// A number of steps as in TrainingArguments.
TrainingFlag steps(std::string_view name, double Settings::*member, double minimum,
                   std::string_view help) {
  TrainingFlag flag = number(name, member, minimum, kNoMaximum, help);
  flag.counts_steps = true;
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

TrainingFlag unused_in_job(TrainingFlag flag, std::string_view reason) {
  flag.unused_in_job = reason;
  return flag;
}

TrainingFlag determines_weights(TrainingFlag flag) {
  flag.determines_weights = true;
  return flag;
}

TrainingFlag determines_best_model(TrainingFlag flag) {
  flag.determines_best_model = true;
  return flag;
}

TrainingFlag dropout(std::string_view name, float Settings::*member, std::string_view help) {
  return determines_weights(or_minus_one(exclusive_maximum(number(name, member, 0, 1, help))));
}

// Flags that work.
std::vector<TrainingFlag> working_flags() {
  return {
      // Task, model and data.
      determines_weights(ignores_case(
          choice("task_name", &Settings::task_name, task_names(), "task to train on"))),
      differs(
          hub_name(string("dataset_name", &Settings::dataset_name,
                          "data set on the Hugging Face hub: squad, squad_v2, or glue with the "
                          "task in dataset_config_name; sets task_name. Or a directory of its "
                          "Parquet files")),
          "The scripts take every data set with their columns. Here another one needs task_name "
          "and the columns of that task, or is given as files, see train_file. glue is trained as "
          "with task_name; run_glue.py then has accuracy, or for stsb mse, as its only metric, "
          "numbers as labels, and predict_results_None.txt."),
      string("dataset_config_name", &Settings::dataset_config_name,
             "configuration of dataset_name: the task of glue"),
      volume_path(string("train_file", &Settings::train_file,
                         "file with the training examples: csv, tsv, json or jsonl")),
      volume_path(string("validation_file", &Settings::validation_file,
                         "file with the examples to evaluate on")),
      volume_path(string("test_file", &Settings::test_file, "file with the examples to predict")),
      differs(string("data_dir", &Settings::data_dir,
                     "directory with the task's training and evaluation files; empty: the task's "
                     "data set on the Hugging Face hub"),
              "Not in the scripts: the public files of a task in a local directory."),
      differs(
          required(hub_name(string(
              "model_name_or_path", &Settings::model_name_or_path,
              "pre-trained model: a directory in Hugging Face's layout, or a name on its hub"))),
          "A model in the cache is used without a request, and the log says so; transformers "
          "asks the hub for a later commit."),
      string("model_revision", &Settings::model_revision,
             "branch, tag or commit of a model on the hub"),
      hub_name(
          string("config_name", &Settings::config_name,
                 "directory, file or hub name of config.json, if it is not in that of the model")),
      hub_name(string("tokenizer_name", &Settings::tokenizer_name,
                      "directory or hub name of the tokenizer, if it is not in that of the model")),
      differs(boolean("ignore_mismatched_sizes", &Settings::ignore_mismatched_sizes,
                      "initialise tensors of the head at random that have another shape in the "
                      "model's weights, as with another number of labels"),
              "Applies to the head only: an encoder whose weights do not fit its config.json is "
              "refused."),
      volume_path(string("cache_dir", &Settings::cache_dir,
                         "directory for downloads; empty: Hugging Face's cache directory")),
      boolean("overwrite_cache", &Settings::overwrite_cache,
              "tokenize the training data even if the cache has their tokens"),
      secret(string("token", &Settings::token,
                    "access token of the hub; prefer the variable HF_TOKEN")),
      differs(required(string("output_dir", &Settings::output_dir,
                              "directory for checkpoints, the trained model and its results")),
              "The Trainer's default is trainer_output. Here only an evaluation may leave it out. "
              "docs/from-the-cpu-guides.md lists the files in it."),
      differs(default_is(boolean("do_train", &Settings::do_train, "train the model"),
                         "true if none of do_train, do_eval and do_predict is true"),
              "The scripts do nothing without one of the three flags. Here a command without them "
              "trains and evaluates."),
      differs(default_is(boolean("do_eval", &Settings::do_eval,
                                 "evaluate the model, after the training if there is one"),
                         "true if none of do_train, do_eval and do_predict is true, or, in a "
                         "training, with eval_strategy"),
              "See do_train."),
      boolean("do_predict", &Settings::do_predict,
              "predict the test examples and write the predictions"),
      determines_weights(
          or_minus_one(integer("max_train_samples", &Settings::max_train_samples, 1, kNoMaximum,
                               "train on the first N rows only; -1: all rows"))),
      or_minus_one(integer("max_eval_samples", &Settings::max_eval_samples, 1, kNoMaximum,
                           "evaluate on the first N rows only; -1: all rows")),
      differs(or_minus_one(integer("max_predict_samples", &Settings::max_predict_samples, 1,
                                   kNoMaximum, "predict the first N rows only; -1: all rows")),
              "Also limits MNLI's mismatched test set, of which run_glue.py predicts all rows."),
      // Batches.
      determines_weights(default_is(
          integer("max_seq_length", &Settings::max_seq_length, 4, 1e6,
                  "truncate examples to this many tokens, [CLS] and [SEP] included; raise it for "
                  "long texts, lower it to save time and memory; above the model's maximum: that"),
          "128, for question answering 384")),
      // Padding changes the order of summation of weight gradients and therefore their rounding.
      differs(determines_weights(boolean("pad_to_max_length", &Settings::pad_to_max_length,
                                         "pad every example to max_seq_length tokens; slower, for "
                                         "comparisons")),
              "The scripts pad by default. Here padding changes nothing but rounding, so it is "
              "skipped. run_qa.py's loss also counts the scores of the padding tokens: see "
              "loss_counts_padding."),
      determines_weights(
          boolean("loss_counts_padding", &Settings::loss_counts_padding,
                  "question answering: count the scores of the padding tokens in the loss, as "
                  "run_qa.py does; slower, because each batch is padded to its longest example, or "
                  "with pad_to_max_length to max_seq_length")),
      alias(integer("per_device_train_batch_size", &Settings::per_device_train_batch_size, 1, 65536,
                    "examples per process and micro-batch in training"),
            "per_gpu_train_batch_size"),
      differs(alias(integer("per_device_eval_batch_size", &Settings::per_device_eval_batch_size, 1,
                            65536, "examples per process and batch in evaluation"),
                    "per_gpu_eval_batch_size"),
              "More examples are evaluated at once as long as they have at most 2,048 tokens "
              "together; the results do not depend on it."),
      differs(integer("gradient_accumulation_steps", &Settings::gradient_accumulation_steps, 1,
                      65536, "micro-batches per optimizer step"),
              "The global batch counts nominal_workers and does not change when workers join or "
              "leave. All examples of a step have the same weight: in a shorter last step of an "
              "epoch the Trainer averages the means of micro-batches and processes, and repeats "
              "examples to fill the batches of all processes."),
      alias(boolean("gradient_checkpointing", &Settings::gradient_checkpointing,
                    "recompute activations in the backward pass instead of keeping those of all "
                    "layers: less memory, more time, the same weights"),
            "activation_checkpointing"),
      differs(determines_weights(boolean("group_by_length", &Settings::group_by_length,
                                         "put examples of similar length into one batch")),
              "Groups as the Trainer does, from another random order (worker/train/data_order.h). "
              "Without padding it saves no time."),
      differs(choice("train_sampling_strategy", &Settings::train_sampling_strategy,
                     {"random", "group_by_length"}, "transformers 5's name of group_by_length"),
              "The Trainer's sequential and batch_rebalance are not implemented."),
      differs(determines_weights(boolean("dataloader_drop_last", &Settings::dataloader_drop_last,
                                         "drop the incomplete last batch of each epoch")),
              "In training only. The Trainer also leaves the last examples out of evaluations and "
              "predictions."),
      // Question answering.
      of_run_qa(determines_weights(
          integer("doc_stride", &Settings::doc_stride, 0, 8192,
                  "tokens by which neighbouring windows of a long context overlap"))),
      of_run_qa(
          determines_weights(boolean("version_2_with_negative", &Settings::version_2_with_negative,
                                     "some questions have no answer, as in SQuAD 2.0"))),
      of_run_qa(number("null_score_diff_threshold", &Settings::null_score_diff_threshold,
                       -kNoMaximum, kNoMaximum,
                       "predict no answer if its score exceeds the best answer's by more than "
                       "this")),
      of_run_qa(integer("n_best_size", &Settings::n_best_size, 1, 1000,
                        "answers per question in the n-best file")),
      of_run_qa(integer("max_answer_length", &Settings::max_answer_length, 1, 8192,
                        "maximum length of an answer in tokens")),
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
      determines_weights(number("max_grad_norm", &Settings::max_grad_norm, -kNoMaximum, kNoMaximum,
                                "gradients are clipped to this norm; 0 or below: no clipping")),
      determines_weights(number("label_smoothing_factor", &Settings::label_smoothing_factor, 0, 1,
                                "label smoothing of a classification, from 0 (none) to 1; no "
                                "effect on question answering")),
      determines_weights(number("num_train_epochs", &Settings::num_train_epochs, 0, 1e6,
                                "epochs to train; fractions are allowed")),
      differs(determines_weights(or_minus_one(
                  integer("max_steps", &Settings::max_steps, 1, kNoMaximum,
                          "optimizer steps to train; overrides num_train_epochs; -1: unset"))),
              "0 is an error; newer Trainers make one step with it, older ones take it as unset."),
      differs(determines_weights(
                  choice("lr_scheduler_type", &Settings::lr_scheduler_type,
                         {"linear", "constant", "constant_with_warmup", "cosine",
                          "cosine_with_restarts", "polynomial"},
                         "learning rate schedule after the warm-up; constant has no warm-up")),
              "The Trainer's inverse_sqrt, reduce_lr_on_plateau, cosine_with_min_lr, "
              "cosine_warmup_with_min_lr and warmup_stable_decay are not implemented."),
      determines_weights(number("warmup_ratio", &Settings::warmup_ratio, 0, 1,
                                "fraction of all steps that are warm-up steps")),
      determines_weights(steps("warmup_steps", &Settings::warmup_steps, 0,
                               "warm-up steps, in which the learning rate rises; overrides "
                               "warmup_ratio; 0: unset")),
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
      determines_weights(
          or_minus_one(integer("data_seed", &Settings::data_seed, 0, 4294967295,
                               "random seed of the order of examples; -1: the same as seed"))),
      // Evaluation during the training.
      determines_best_model(
          alias(choice("eval_strategy", &Settings::eval_strategy, {"no", "steps", "epoch"},
                       "when to evaluate during the training"),
                "evaluation_strategy")),
      determines_best_model(
          default_is(steps("eval_steps", &Settings::eval_steps, 0,
                           "steps between evaluations with eval_strategy steps; 0: the default"),
                     "logging_steps if that is set, else 500")),
      differs(
          determines_weights(boolean("load_best_model_at_end", &Settings::load_best_model_at_end,
                                     "keep the weights of the best evaluation (by "
                                     "metric_for_best_model) instead of the last ones")),
          "A checkpoint is also written at each new best evaluation, so eval_steps and "
          "save_steps are independent. save_total_limit never deletes the best one."),
      determines_best_model(default_is(
          string("metric_for_best_model", &Settings::metric_for_best_model,
                 "metric that selects the best evaluation, such as loss, accuracy or f1"),
          "loss")),
      determines_best_model(default_is(boolean("greater_is_better", &Settings::greater_is_better,
                                               "whether a larger metric_for_best_model is better"),
                                       "false for a loss, true for other metrics")),
      // Logging and checkpoints.
      choice("logging_strategy", &Settings::logging_strategy, {"no", "steps", "epoch"},
             "when to log the training loss"),
      differs(steps("logging_steps", &Settings::logging_steps, 1, "steps between log lines"),
              "The Trainer logs every 500 steps, which is more than a short training has."),
      boolean("logging_first_step", &Settings::logging_first_step, "log the first step too"),
      choice("save_strategy", &Settings::save_strategy, {"no", "steps", "epoch", "best"},
             "when to write a checkpoint; best: at each new best evaluation"),
      steps("save_steps", &Settings::save_steps, -kNoMaximum,
            "steps between checkpoints with save_strategy steps; 0 or below: only after the last"),
      differs(integer("save_total_limit", &Settings::save_total_limit, -kNoMaximum, kNoMaximum,
                      "maximum number of checkpoints to keep; 0 or below: all"),
              "The Trainer keeps all. Workers restart from the newest, so older ones only fill the "
              "volume."),
      differs(
          boolean("overwrite_output_dir", &Settings::overwrite_output_dir,
                  "begin anew in the output directory, also if it belongs to another job"),
          "Removes the checkpoints that this program has written there, of any job; the Trainer "
          "keeps them until save_total_limit removes them. To start from one of them, use "
          "another output_dir."),
      differs(volume_path(string("resume_from_checkpoint", &Settings::resume_from_checkpoint,
                                 "checkpoint directory to resume from; empty: this job's newest "
                                 "checkpoint, if any")),
              "If the job has checkpoints of its own, it resumes from the newest of these, also "
              "without the flag, as the scripts of transformers 4 do; those of transformers 5 then "
              "begin anew. The data, the starting weights and all flags that determine the "
              "weights, such as num_train_epochs and learning_rate, must be those of the "
              "checkpoint; the Trainer continues with others. Checkpoints of the Trainer are "
              "refused. To train further, give the model or the checkpoint as model_name_or_path."),
      string("run_name", &Settings::run_name,
             "name of the run in the log and in train_results.json"),
      differs(synonyms(choice("log_level", &Settings::log_level,
                              {"trace", "debug", "info", "warn", "error"},
                              "lowest level of messages to log"),
                       {{"detail", "debug"},
                        {"passive", "info"},
                        {"warning", "warn"},
                        {"critical", "error"}}),
              "The Trainer's detail, passive, warning and critical are accepted too and mean "
              "debug, info, warn and error."),
      // Computation.
      differs(
          default_is(determines_weights(boolean(
                         "bf16", &Settings::bf16,
                         "compute in bfloat16 with fp32 master weights; false: all in fp32, more "
                         "precise but slower on CPUs with AVX512-BF16 or AMX")),
                     "true on CPUs with bf16 instructions"),
          "The Trainer computes in fp32 by default. Here bf16 is on where the CPU has instructions "
          "for it, and the log says so. If only some workers' CPUs have them, set the flag."),
      determines_weights(boolean("exact", &Settings::exact,
                                 "bit-identical weights for any number of workers and threads")),
      determines_weights(
          integer("virtual_shards", &Settings::virtual_shards, 0, kMaxVirtualShards,
                  "number of fixed parts of the global batch, a power of two that is "
                  "at least the number of processes; 0: automatic")),
      boolean("rebalance_shards", &Settings::rebalance_shards,
              "name processes that stay slower than the others, and with exact move virtual shards "
              "away from them, with the same weights"),
      integer("threads", &Settings::threads, 0, 4096,
              "threads per process, at most one per CPU that it may use; 0: the cores available to "
              "the process"),
      differs(
          unused_in_job(
              alias(choice("ddp_backend", &Settings::ddp_backend,
                           {"ccl", "gloo", "mpi", "shm", "tcp"},
                           "how processes exchange gradients. ccl, gloo: shared memory on one "
                           "host, TCP between hosts; shm: only shared memory; tcp: only TCP; "
                           "mpi: Open MPI, if its mpirun started them"),
                    "xpu_backend"),
              "the workers choose shared memory or TCP themselves"),
          "The Trainer has no default and no values shm and tcp. With exact every value gives the "
          "same weights; oneCCL and Gloo are not used."),
      integer(
          "ddp_streams", &Settings::ddp_streams, 0, kMaxDdpStreams,
          "threads that exchange gradients, each with connections of its own; all processes use "
          "the smallest of their numbers; 0: 1 to 4, by the number of threads"),
      differs(determines_weights(choice(
                  "ddp_comm_hook", &Settings::ddp_comm_hook, {"no", "bf16"},
                  "how gradients are rounded; bf16: that of each virtual shard, and each sum of "
                  "two, to bf16, which halves the traffic between hosts; fastest with as many "
                  "virtual shards as processes")),
              "The Trainer takes it from Accelerate's configuration. With bf16 the weights are as "
              "independent of the number of workers as without."),
      determines_weights(choice("gemm_backend", &Settings::gemm_backend, {"native", "onednn"},
                                "GEMM backend of the linear layers; use onednn if "
                                "`tilewright-worker bench step` shows that it is faster on your "
                                "CPU; it turns exact off")),
      set_by_runtime(integer("nominal_workers", &Settings::nominal_workers, 0, kMaxVirtualShards,
                             "number of processes that determines the global batch size; 0: the "
                             "size of the job, under `agent --nnodes MIN:MAX` MAX times "
                             "nproc_per_node")),
      set_by_runtime(integer("max_workers", &Settings::max_workers, 0, kMaxVirtualShards,
                             "maximum number of processes of the job; 0: nominal_workers")),
  };
}

}  // namespace

std::span<const TrainingFlag> training_flags() {
  static const std::vector<TrainingFlag> kFlags = [] {
    std::vector<TrainingFlag> flags = working_flags();
    for (TrainingFlag& flag : flags_without_effect()) flags.push_back(std::move(flag));
    for (TrainingFlag& flag : refused_flags()) flags.push_back(std::move(flag));
    return flags;
  }();
  return kFlags;
}

}  // namespace tilewright
