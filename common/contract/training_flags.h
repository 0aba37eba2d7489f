// The flags of `tilewright-worker train`. Each flag is declared once, in training_flag_table.cpp:
// name, member of TrainingSettings, bounds and help. The worker's parser and --help, the CRD, the
// validation of spec.trainer and docs/reference.md read that table. Flags of Hugging Face's
// run_glue.py, run_qa.py and TrainingArguments keep their names and meanings.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright {

// The values of the flags, and their defaults.
struct TrainingSettings {
  std::string task_name;
  std::string dataset_name;
  std::string dataset_config_name;
  std::string train_file;
  std::string validation_file;
  std::string test_file;
  std::string data_dir;
  std::string model_name_or_path;
  std::string model_revision = "main";
  std::string config_name;
  std::string tokenizer_name;
  bool ignore_mismatched_sizes = false;
  std::string cache_dir;
  bool overwrite_cache = false;
  std::string token;
  std::string output_dir;
  // As given; train::make_settings() resolves them: if one of the three is true on the command
  // line, the others are false unless they are given too.
  bool do_train = true;
  bool do_eval = true;
  bool do_predict = false;
  std::int64_t max_train_samples = -1;
  std::int64_t max_eval_samples = -1;
  std::int64_t max_predict_samples = -1;

  std::int64_t max_seq_length = 128;
  std::int64_t doc_stride = 128;
  std::int64_t n_best_size = 20;
  std::int64_t max_answer_length = 30;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0;
  bool pad_to_max_length = false;
  bool loss_counts_padding = false;
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  bool gradient_checkpointing = false;
  bool group_by_length = false;
  std::string train_sampling_strategy = "random";
  bool dataloader_drop_last = false;

  double learning_rate = 5e-5;
  float weight_decay = 0;
  float adam_beta1 = 0.9f;
  float adam_beta2 = 0.999f;
  float adam_epsilon = 1e-8f;
  float max_grad_norm = 1;
  float label_smoothing_factor = 0;
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;
  std::string lr_scheduler_type = "linear";
  double warmup_ratio = 0;
  double warmup_steps = 0;
  float hidden_dropout_prob = -1;
  float attention_probs_dropout_prob = -1;
  float classifier_dropout = -1;
  std::int64_t seed = 42;
  std::int64_t init_seed = -1;
  std::int64_t data_seed = -1;

  std::string eval_strategy = "no";
  double eval_steps = 0;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model;
  bool greater_is_better = false;

  std::string logging_strategy = "steps";
  double logging_steps = 10;
  bool logging_first_step = false;
  std::string save_strategy = "steps";
  double save_steps = 500;
  std::int64_t save_total_limit = 2;
  bool overwrite_output_dir = false;
  std::string resume_from_checkpoint;
  std::string run_name;
  std::string log_level = "info";

  bool bf16 = true;
  bool exact = true;
  std::int64_t virtual_shards = 0;
  bool rebalance_shards = true;
  std::int64_t threads = 0;
  std::string ddp_backend = "ccl";
  std::int64_t ddp_streams = 0;  // at most kMaxDdpStreams
  std::string ddp_comm_hook = "no";
  std::string gemm_backend = "native";
  std::int64_t nominal_workers = 0;
  std::int64_t max_workers = 0;

  bool needs_best_model() const { return load_best_model_at_end || save_strategy == "best"; }
};

// Means "no maximum". Integers up to this value are exact in a double.
inline constexpr double kNoMaximum = 1e15;
inline constexpr std::int64_t kMaxDdpStreams = 16;

enum class FlagType { kBool, kInt, kFloat, kString, kChoice };

// monostate: of a flag without effect.
using TrainingMember = std::variant<std::monostate, bool TrainingSettings::*,
                                    std::int64_t TrainingSettings::*, double TrainingSettings::*,
                                    float TrainingSettings::*, std::string TrainingSettings::*>;

// A word that is accepted in place of a choice.
struct ChoiceSynonym {
  std::string_view word;
  std::string_view choice;
};

struct TrainingFlag {
  std::string_view name;
  FlagType type;
  TrainingMember member;
  std::vector<std::string_view> aliases = {};
  // In normal form; see normalize_flag_value(). Empty: the flag is not set.
  std::string default_value = {};
  // Of a default that follows from other flags or the machine: "eval_steps: logging_steps".
  std::string_view default_description = {};
  double minimum = 0;              // kInt and kFloat only, inclusive
  double maximum = 0;              // kInt and kFloat only
  bool exclusive_maximum = false;  // the maximum itself is not allowed
  bool allows_minus_one = false;   // -1 is allowed too; `help` says what it means
  // kFloat only: an integer in the bounds, or below 1 a fraction of all steps of the training.
  bool counts_steps = false;
  std::vector<std::string_view> choices = {};
  std::vector<ChoiceSynonym> synonyms = {};
  bool ignores_case = false;  // kChoice only
  // For a flag without effect, the reason why nothing depends on it; for a refused one, the reason
  // and what to use instead.
  std::string_view help = {};
  std::string_view difference = {};  // from Hugging Face's flag of the same name, and why
  // The flag is accepted, so that a command line of a Hugging Face script runs, and does nothing.
  bool accepted_without_effect = false;
  // Values that do not switch it off are an error: others than false, 0, -1, none, {} and [].
  bool refused = false;
  // Of a refused flag, a JSON object: objects with some of these members switch it off too.
  std::string_view neutral_object = {};
  bool value_optional = false;  // kString only: the flag alone has the value "true"
  bool takes_words = false;     // all words up to the next flag are its value, of which one is kept
  // kBool only: the flag that has the value in place of this one if it is no boolean.
  std::string_view string_flag = {};
  bool secret = false;          // not in a manifest, which many can read
  bool volume_path = false;     // a path; in a manifest, VOLUME:relative/path
  bool hub_name = false;        // or the name of a repository on the hub
  bool required = false;        // an empty value is an error
  bool of_run_qa = false;       // run_glue.py does not have it
  bool set_by_runtime = false;  // by the operator, `tilewright up` or the agent; not in a manifest
  // Why a flag that works elsewhere has no effect in a TrainJob; empty: it has one.
  std::string_view unused_in_job = {};
  // The trained weights depend on the value. It must be equal on all workers, and equal in a
  // checkpoint and the training that resumes from it.
  bool determines_weights = false;
  // The best evaluation depends on the value, and so the weights of a training that needs it; see
  // determines_weights_of(). It must be equal on all workers.
  bool determines_best_model = false;

  bool determines_weights_of(const TrainingSettings& settings) const {
    return determines_weights || (determines_best_model && settings.needs_best_model());
  }
  bool works() const { return !accepted_without_effect && !refused; }
  bool is_path() const { return volume_path || name == "output_dir" || name == "data_dir"; }
  // Whether it is a field of spec.trainer.
  bool in_manifest() const { return !refused && !set_by_runtime && !secret; }
  // Why a field of spec.trainer has no effect; empty: it has one.
  std::string_view reason_unused_in_job() const {
    return accepted_without_effect ? help : unused_in_job;
  }
};

std::span<const TrainingFlag> training_flags();
// nullptr if no flag has that name or alias. Dashes count as underscores.
const TrainingFlag* find_training_flag(std::string_view name);
// The flag whose name is closest to `name`; empty if none is close.
std::string_view nearest_training_flag(std::string_view name);

// For help and documentation: "5e-05", "the value of logging_steps", "none".
std::string describe_default(const TrainingFlag& flag);

// Why a flag is no field of spec.trainer: "must not be set: the operator sets it".
std::string reason_not_in_manifest(const TrainingFlag& flag);

// "a number from 0 to 1", "true or false", "one of linear, constant": for messages and help.
std::string describe_expected(const TrainingFlag& flag);

// `value` in normal form ("1e-4" is "0.0001", "True" is "true"), or an Error (kUsage) whose message
// is "found ..., expected ..." without the flag's name.
Result<std::string> normalize_flag_value(const TrainingFlag& flag, std::string_view value);

// The value of a flag that works, in normal form.
std::string setting_value(const TrainingSettings& settings, const TrainingFlag& flag);

// Whether a value from JSON or YAML has the type of the flag.
bool accepts_json(const TrainingFlag& flag, const nlohmann::json& value);

// "; write it without quotes" if `value` is a string and holds a value that the flag accepts as a
// number or boolean; else empty.
std::string describe_quoted_value(const TrainingFlag& flag, const nlohmann::json& value);

// A flag of a command line and its value, or a word that belongs to no flag.
struct FlagArgument {
  std::size_t index = 0;               // of the flag's word
  std::string_view name = {};          // as written, without "--"; empty: no flag, only `value`
  const TrainingFlag* flag = nullptr;  // nullptr: unknown
  std::string_view value = {};         // as written; "true" or "false" of a boolean without a value
  bool has_value = true;
  bool abbreviated = false;  // `name` is only the beginning of the flag's name
};

// The flag that names a JSON file of flags.
inline constexpr std::string_view kConfigFlag = "config";

// Divides a command line into flags: --name=value, --name value, --name alone and --no_name for a
// boolean flag, dashes in place of underscores, and as argparse the beginning of a name if no other
// name begins so. Words that are only white space or a backslash, left over from a line break, are
// skipped. The result refers to `words`.
std::vector<FlagArgument> split_command_line(std::span<const std::string> words);

// The value of a known or unknown flag in normal form. The Error (kUsage) is a complete sentence:
// "--seed: found x, expected ..."; for an unknown flag it suggests the closest name, for an
// ambiguous beginning all names. A refused flag is an error unless its value switches it off.
Result<std::string> check_argument(const FlagArgument& argument);

// A parsed command line.
class TrainingArguments {
 public:
  // Accepts what Hugging Face's HfArgumentParser accepts: flags as split_command_line() describes
  // them and, as the first word or after --config, the name of a JSON file with an object of flags.
  // The last value wins. An Error (kUsage) is a complete sentence.
  static Result<TrainingArguments> parse(std::span<const std::string> arguments);

  const TrainingSettings& settings() const { return settings_; }
  bool is_set(std::string_view name) const { return set_.contains(name); }
  // Expands a leading ~ of every path, as transformers' TrainingArguments does in output_dir.
  void expand_home(const GetVariable& variable);
  // Names the flags without effect that are set; empty if there are none.
  std::string note() const;

 private:
  Status set(const FlagArgument& argument);
  Status read_json_file(const std::string& path);

  TrainingSettings settings_;
  std::set<std::string, std::less<>> set_;  // names of flags, not aliases
};

}  // namespace tilewright
