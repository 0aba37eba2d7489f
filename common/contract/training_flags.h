// Every flag of `tilewright-worker train`, once: the worker builds its parser from this table and
// the controller checks a manifest's trainer block against it. Names and meanings are those of
// Hugging Face's run_glue and TrainingArguments where these have them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright {

// A maximum that stands for none; whole numbers up to here are exact in a double.
inline constexpr double kUnbounded = 1e15;

enum class FlagType { kBool, kInt, kFloat, kString, kChoice };

struct TrainingFlag {
  std::string_view name;
  FlagType type;
  std::string_view default_value;  // as text, in normal form
  double minimum = 0;              // numbers only, inclusive
  double maximum = 0;              // numbers only
  bool below_maximum = false;      // the maximum itself is out
  bool or_minus_one = false;       // -1 is allowed as well, and means what help says
  std::vector<std::string_view> choices = {};
  std::string_view help;
  // Set by whoever starts the workers; refused in a manifest.
  bool set_by_runtime = false;
};

std::span<const TrainingFlag> training_flags();
// nullptr when there is none of that name.
const TrainingFlag* find_training_flag(std::string_view name);
// The known flag nearest to a misspelt name; empty when nothing is near.
std::string_view nearest_training_flag(std::string_view name);

// "a number from 0 to 1", "true or false", "one of linear, constant": for messages and help.
std::string describe_expected(const TrainingFlag& flag);

// `text` in normal form ("1e-4" is "0.0001", "True" is "true"), or an Error (kUsage) whose message
// is "found ..., expected ...", without the flag's name.
Result<std::string> normalise_flag(const TrainingFlag& flag, std::string_view text);

// The values of all flags: defaults until set.
class TrainingArguments {
 public:
  // An Error (kUsage) is a whole sentence, with the nearest known name for an unknown one.
  Status set(std::string_view name, std::string_view text);
  // --name=value, --name value, and --name alone for a bool. Anything else is refused.
  static Result<TrainingArguments> parse(std::span<const std::string> arguments);

  // Asking for a name or a type that the table does not have is a bug and aborts.
  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::string text(std::string_view name) const;  // strings and choices
  bool is_set(std::string_view name) const { return values_.contains(name); }

 private:
  std::string value(std::string_view name, FlagType type) const;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace tilewright
