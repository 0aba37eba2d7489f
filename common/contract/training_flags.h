// The flags of `tilewright-worker train`. Each flag is declared once, in training_flag_table.cpp:
// name, member of TrainingSettings, bounds and help. The worker's parser and --help, the CRD and
// the validation of spec.trainer read that table. Flags of Hugging Face's run_glue.py and
// TrainingArguments keep their names and meanings.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace tilewright {

// The values of the flags, and their defaults.
struct TrainingSettings {
  std::string task_name;
  std::string model_name_or_path;
  std::string data_dir;
  std::string output_dir;
  bool do_train = true;
  bool do_eval = true;
  std::int64_t max_train_samples = -1;
  std::int64_t max_eval_samples = -1;

  std::int64_t max_seq_length = 128;
  bool pad_to_max_length = false;
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;

  double learning_rate = 5e-5;
  float weight_decay = 0;
  float adam_beta1 = 0.9f;
  float adam_beta2 = 0.999f;
  float adam_epsilon = 1e-8f;
  float max_grad_norm = 1;
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;
  std::string lr_scheduler_type = "linear";
  double warmup_ratio = 0;
  std::int64_t warmup_steps = 0;
  float hidden_dropout_prob = -1;
  float attention_probs_dropout_prob = -1;
  float classifier_dropout = -1;
  std::int64_t seed = 42;
  std::int64_t init_seed = -1;

  std::int64_t logging_steps = 10;
  bool logging_first_step = false;
  std::string save_strategy = "steps";
  std::int64_t save_steps = 500;
  std::int64_t save_total_limit = 2;
  bool overwrite_output_dir = false;
  std::string resume_from_checkpoint;
  std::string run_name;
  std::string log_level = "info";

  bool bf16 = true;
  bool exact = true;
  std::int64_t virtual_shards = 0;
  std::int64_t threads = 0;
  std::string gemm_backend = "native";
  std::int64_t nominal_workers = 0;
  std::int64_t max_workers = 0;
};

// Means "no maximum". Integers up to this value are exact in a double.
inline constexpr double kNoMaximum = 1e15;

enum class FlagType { kBool, kInt, kFloat, kString, kChoice };

using TrainingMember = std::variant<bool TrainingSettings::*, std::int64_t TrainingSettings::*,
                                    double TrainingSettings::*, float TrainingSettings::*,
                                    std::string TrainingSettings::*>;

struct TrainingFlag {
  std::string_view name;
  FlagType type;
  TrainingMember member;
  std::string default_value = {};  // in normal form; see normalize_flag_value()
  double minimum = 0;              // kInt and kFloat only, inclusive
  double maximum = 0;              // kInt and kFloat only
  bool exclusive_maximum = false;  // the maximum itself is not allowed
  bool allows_minus_one = false;   // -1 is allowed too; `help` says what it means
  std::vector<std::string_view> choices = {};
  std::string_view help = {};
  bool required = false;        // an empty value is an error
  bool set_by_runtime = false;  // by the operator, `tilewright up` or the agent; not in a manifest
  // The trained weights depend on the value. It must be equal on all workers, and equal in a
  // checkpoint and the training that resumes from it.
  bool determines_weights = false;
};

std::span<const TrainingFlag> training_flags();
// nullptr if no flag has that name.
const TrainingFlag* find_training_flag(std::string_view name);
// The flag whose name is closest to `name`; empty if none is close.
std::string_view nearest_training_flag(std::string_view name);

// "a number from 0 to 1", "true or false", "one of linear, constant": for messages and help.
std::string describe_expected(const TrainingFlag& flag);

// `value` in normal form ("1e-4" is "0.0001", "True" is "true"), or an Error (kUsage) whose message
// is "found ..., expected ..." without the flag's name.
Result<std::string> normalize_flag_value(const TrainingFlag& flag, std::string_view value);

// A parsed command line.
class TrainingArguments {
 public:
  // Accepts --name=value, --name value, and --name alone for a boolean flag; the last value wins.
  // An Error (kUsage) is a complete sentence; for an unknown flag it suggests the closest name.
  static Result<TrainingArguments> parse(std::span<const std::string> arguments);

  const TrainingSettings& settings() const { return settings_; }
  bool is_set(std::string_view name) const { return set_.contains(name); }

 private:
  Status set(std::string_view name, std::string_view value);

  TrainingSettings settings_;
  std::set<std::string, std::less<>> set_;
};

}  // namespace tilewright
