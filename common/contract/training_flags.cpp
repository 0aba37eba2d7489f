#include "common/contract/training_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/json_events.h"
#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxValueBytes = 4096;  // PATH_MAX
constexpr std::uint64_t kMaxArgumentFileBytes = 1 << 20;

// The words that HfArgumentParser reads as booleans, in lower case.
constexpr std::array<std::string_view, 5> kTrueWords = {"true", "yes", "t", "y", "1"};
constexpr std::array<std::string_view, 5> kFalseWords = {"false", "no", "f", "n", "0"};

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

// Left over from a command that was printed over several lines.
bool is_line_break(std::string_view word) {
  return word.find_first_not_of("\\ \t\r\n") == std::string_view::npos;
}

// A word that is not a flag; "-1" and "-1e-5" are values.
bool is_value(std::string_view word) {
  return !word.starts_with("--") || word.size() == 2 || is_line_break(word);
}

// "array", or "invalid JSON at byte 12", counted from 1.
std::string describe_json(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return json.type_name();
  } catch (const nlohmann::json::parse_error& error) {
    return fmt::format("invalid JSON at byte {}", error.byte);
  } catch (const nlohmann::json::exception&) {
    return "a number out of range";
  }
}

// {}, [], or an object of which each member has its neutral value.
bool is_neutral_json(const TrainingFlag& flag, std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_structured()) return false;
  if (json.empty()) return true;
  if (!json.is_object() || flag.neutral_object.empty()) return false;
  const auto neutral = nlohmann::json::parse(flag.neutral_object);
  for (const auto& [name, value] : json.items()) {
    if (!neutral.contains(name) || neutral.at(name) != value) return false;
  }
  return true;
}

// Whether a refused flag is switched off, so that a command line may have it.
bool is_neutral(const TrainingFlag& flag, std::string_view normal) {
  if (flag.type == FlagType::kBool) return normal == "false";
  if (flag.type == FlagType::kString) {
    return normal.empty() || lower_case(normal) == "none" || is_neutral_json(flag, normal);
  }
  return normal == "0" || normal == "-1";
}

std::string describe_bounds(const TrainingFlag& flag, std::string_view noun) {
  if (flag.minimum <= -kNoMaximum) return std::string(noun);
  if (flag.maximum >= kNoMaximum) return fmt::format("{} of at least {}", noun, flag.minimum);
  return fmt::format("{} from {} to {}{}", noun, flag.minimum,
                     flag.exclusive_maximum ? "below " : "", flag.maximum);
}

std::string describe_range(const TrainingFlag& flag, std::string_view noun) {
  return describe_bounds(flag, noun) + (flag.allows_minus_one ? ", or -1" : "") +
         (flag.counts_steps ? ", or a fraction below 1 of all steps" : "");
}

bool in_range(const TrainingFlag& flag, double value) {
  if (flag.allows_minus_one && value == -1) return true;
  if (flag.counts_steps && value > 0 && value < 1) return true;
  if (flag.counts_steps && value != std::floor(value)) return false;
  return value >= flag.minimum &&
         (flag.exclusive_maximum ? value < flag.maximum : value <= flag.maximum);
}

// As Python's int() and float(), without underscores and other digits than those of ASCII.
template <typename Number>
bool parse_python_number(std::string_view text, Number& number) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// A maximum of kNoMaximum, which describe_expected() leaves out because it rarely matters.
std::string describe_rare_limit(const TrainingFlag& flag, std::string_view value) {
  double number = 0;
  const bool is_beyond =
      parse_python_number(value, number) && flag.maximum >= kNoMaximum && number > flag.maximum;
  return is_beyond ? fmt::format(", at most {}", flag.maximum) : "";
}

Error unexpected(const TrainingFlag& flag, std::string_view value) {
  return {ExitCode::kUsage,
          fmt::format("found {}, expected {}{}", value.empty() ? "nothing" : excerpt(value),
                      describe_expected(flag), describe_rare_limit(flag, value))};
}

// Stores a value in normal form.
void assign(TrainingSettings& settings, const TrainingFlag& flag, const std::string& normal) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
          auto& target = settings.*member;
          using Value = std::remove_reference_t<decltype(target)>;
          if constexpr (std::is_same_v<Value, std::string>) {
            target = normal;
          } else if constexpr (std::is_same_v<Value, bool>) {
            target = normal == "true";
          } else if constexpr (std::is_same_v<Value, float>) {
            // Parses a double and rounds it to the nearest float in the range: 0.9999999999 to the
            // one below 1.
            double number = 0;
            TW_CHECK(parse_python_number(std::string_view(normal), number), "--{}={}", flag.name,
                     normal);
            target = static_cast<float>(number);
            if (flag.exclusive_maximum && target >= flag.maximum) {
              target = std::nextafter(static_cast<float>(flag.maximum), 0.0f);
            }
          } else {
            TW_CHECK(parse_python_number(std::string_view(normal), target), "--{}={}", flag.name,
                     normal);
          }
        }
      },
      flag.member);
}

// The boolean flag X of --no_X; nullptr if there is none.
const TrainingFlag* negated(std::string_view name) {
  const std::string positive = with_underscores(name);
  if (!positive.starts_with("no_")) return nullptr;
  const TrainingFlag* flag = find_training_flag(std::string_view(positive).substr(3));
  return flag != nullptr && flag->type == FlagType::kBool ? flag : nullptr;
}

// A flag that an abbreviation may stand for.
struct Candidate {
  const TrainingFlag* flag = nullptr;
  std::string name = {};  // or an alias, or no_X of a boolean X
  bool negated = false;
};

std::vector<Candidate> find_abbreviated(std::string_view name) {
  const std::string beginning = with_underscores(name);
  std::vector<Candidate> found;
  if (beginning.empty() || beginning == kConfigFlag) return found;
  const auto begins = [&](std::string_view full) { return full.starts_with(beginning); };
  for (const TrainingFlag& flag : training_flags()) {
    const auto alias = std::ranges::find_if(flag.aliases, begins);
    if (begins(flag.name)) {
      found.push_back({&flag, std::string(flag.name)});
    } else if (alias != flag.aliases.end()) {
      found.push_back({&flag, std::string(*alias)});
    }
    std::string negation = fmt::format("no_{}", flag.name);
    if (flag.type == FlagType::kBool && begins(negation)) {
      found.push_back({&flag, std::move(negation), true});
    }
  }
  return found;
}

// Finds the flag of a word of a command line. True: it is --no_X of the boolean flag X.
bool find_flag(FlagArgument& argument) {
  argument.flag = find_training_flag(argument.name);
  if (argument.flag != nullptr) return false;
  argument.flag = negated(argument.name);
  if (argument.flag != nullptr) return true;
  const std::vector<Candidate> candidates = find_abbreviated(argument.name);
  if (candidates.size() != 1) return false;
  argument.flag = candidates.front().flag;
  argument.abbreviated = true;
  return candidates.front().negated;
}

// The flag whose value is `value` if it is given for `flag`.
const TrainingFlag* flag_of_value(const TrainingFlag* flag, std::string_view value) {
  if (flag == nullptr || flag->string_flag.empty() || normalize_flag_value(*flag, value).ok()) {
    return flag;
  }
  return find_training_flag(flag->string_flag);
}

// For a name that no flag has, or that of a negation with a value.
Error unknown_flag(std::string_view name) {
  if (const TrainingFlag* positive = negated(name)) {
    return {ExitCode::kUsage, fmt::format("--{}: found a value, expected none; --{} takes one",
                                          excerpt(name), positive->name)};
  }
  const std::vector<Candidate> candidates = find_abbreviated(name);
  if (candidates.size() > 1) {
    std::vector<std::string> names;
    names.reserve(candidates.size());
    for (const Candidate& candidate : candidates) names.push_back("--" + candidate.name);
    return {ExitCode::kUsage, fmt::format("--{}: ambiguous flag, expected one of {}", excerpt(name),
                                          fmt::join(names, ", "))};
  }
  constexpr std::array kOfRunClassification = {"text_column_names", "text_column_delimiter",
                                               "label_column_name", "remove_columns",
                                               "metric_name",       "shuffle_seed"};
  if (std::ranges::find(kOfRunClassification, with_underscores(name)) !=
      std::end(kOfRunClassification)) {
    return {ExitCode::kUsage,
            fmt::format("--{}: a flag of run_classification.py, expected those of run_glue.py: the "
                        "columns of a file are sentence1, sentence2 and label",
                        excerpt(name))};
  }
  const std::string hint =
      candidates.empty() ? std::string(nearest_training_flag(name)) : candidates.front().name;
  return {ExitCode::kUsage, fmt::format("--{}: unknown flag{}", excerpt(name),
                                        hint.empty() ? "" : "; did you mean --" + hint + "?")};
}

}  // namespace

const TrainingFlag* find_training_flag(std::string_view name) {
  const std::string wanted = with_underscores(name);
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name == wanted || std::ranges::find(flag.aliases, wanted) != flag.aliases.end()) {
      return &flag;
    }
  }
  return nullptr;
}

std::string_view nearest_training_flag(std::string_view name) {
  std::vector<std::string_view> names;
  for (const TrainingFlag& flag : training_flags()) names.push_back(flag.name);
  return nearest_name(name, names);
}

std::string describe_default(const TrainingFlag& flag) {
  if (!flag.default_description.empty()) return std::string(flag.default_description);
  return flag.default_value;
}

std::string reason_not_in_manifest(const TrainingFlag& flag) {
  if (flag.secret) return "must not be set; set HF_TOKEN in spec.worker.env from a Secret";
  if (flag.set_by_runtime) return "must not be set: the operator sets it";
  return fmt::format("not supported: {}", flag.help);
}

std::string describe_expected(const TrainingFlag& flag) {
  switch (flag.type) {
    case FlagType::kBool:
      return "true or false";
    case FlagType::kInt:
      return describe_range(flag, "an integer");
    case FlagType::kFloat:
      return describe_range(flag, flag.counts_steps ? "an integer" : "a number");
    case FlagType::kString:
      return fmt::format("a string of up to {} bytes", kMaxValueBytes);
    case FlagType::kChoice:
      return fmt::format("one of {}", fmt::join(flag.choices, ", "));
  }
  return "";
}

bool accepts_json(const TrainingFlag& flag, const nlohmann::json& value) {
  switch (flag.type) {
    case FlagType::kBool:
      return value.is_boolean();
    case FlagType::kInt:
      return value.is_number_integer();
    case FlagType::kFloat:
      return value.is_number();
    case FlagType::kString:
    case FlagType::kChoice:
      return value.is_string();
  }
  return false;
}

std::string describe_quoted_value(const TrainingFlag& flag, const nlohmann::json& value) {
  const bool quoted = value.is_string() && flag.type != FlagType::kString &&
                      flag.type != FlagType::kChoice &&
                      normalize_flag_value(flag, value.get_ref<const std::string&>()).ok();
  return quoted ? "; write it without quotes" : "";
}

Result<std::string> normalize_flag_value(const TrainingFlag& flag, std::string_view value) {
  switch (flag.type) {
    case FlagType::kBool: {
      const std::string word = lower_case(value);
      if (std::ranges::find(kTrueWords, word) != kTrueWords.end()) return std::string("true");
      if (std::ranges::find(kFalseWords, word) != kFalseWords.end()) return std::string("false");
      break;
    }
    case FlagType::kInt: {
      std::int64_t number = 0;
      if (parse_python_number(value, number) && in_range(flag, static_cast<double>(number))) {
        return fmt::format("{}", number);
      }
      break;
    }
    case FlagType::kFloat: {
      double number = 0;
      if (parse_python_number(value, number) && std::isfinite(number) && in_range(flag, number)) {
        return fmt::format("{}", number);  // shortest form that parses to the same number
      }
      break;
    }
    case FlagType::kString:
      if (!is_utf8(value)) {  // it could not be written to a JSON file
        return Error{ExitCode::kUsage,
                     fmt::format("found {}, expected UTF-8 text", excerpt(value))};
      }
      if (value.size() <= kMaxValueBytes && value.find('\0') == std::string_view::npos) {
        return std::string(value);
      }
      break;
    case FlagType::kChoice: {
      const std::string word = flag.ignores_case ? lower_case(value) : std::string(value);
      for (const std::string_view choice : flag.choices) {
        if (choice == word) return word;
      }
      for (const ChoiceSynonym& synonym : flag.synonyms) {
        if (synonym.word == word) return std::string(synonym.choice);
      }
      break;
    }
  }
  return unexpected(flag, value);
}

Result<std::string> check_argument(const FlagArgument& argument) {
  const auto [index, name, flag, value, has_value, abbreviated] = argument;
  if (flag == nullptr) return unknown_flag(name);
  if (!has_value) {
    return Error{ExitCode::kUsage,
                 fmt::format("--{}: found no value, expected {}", name, describe_expected(*flag))};
  }
  Result<std::string> normal = normalize_flag_value(*flag, value);
  if (!normal.ok()) {
    return Error{normal.error().code, fmt::format("--{}: {}", name, normal.error().message)};
  }
  if (flag->refused && !is_neutral(*flag, *normal)) {
    return Error{ExitCode::kUsage, fmt::format("--{}: not supported: {}", name, flag->help)};
  }
  return normal;
}

std::vector<FlagArgument> split_command_line(std::span<const std::string> words) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || !is_line_break(words[i])) kept.push_back(i);
  }
  std::vector<FlagArgument> arguments;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::string_view word = words[kept[i]];
    FlagArgument argument{.index = kept[i]};
    if (is_value(word)) {
      argument.value = word;
      arguments.push_back(argument);
      continue;
    }
    word.remove_prefix(2);
    const std::size_t equals = word.find('=');
    argument.name = word.substr(0, equals);
    const bool is_negation = find_flag(argument);
    const TrainingFlag* flag = argument.flag;
    const auto value_follows = [&] { return i + 1 < kept.size() && is_value(words[kept[i + 1]]); };
    if (equals != std::string_view::npos) {
      argument.value = word.substr(equals + 1);
      if (is_negation) argument.flag = nullptr;
    } else if (is_negation) {
      argument.value = "false";
    } else if (value_follows()) {
      argument.value = words[kept[++i]];
      while (flag != nullptr && flag->takes_words && value_follows()) ++i;
    } else {
      argument.has_value =
          flag != nullptr && (flag->type == FlagType::kBool || flag->value_optional);
      argument.value = argument.has_value ? "true" : "";
    }
    if (argument.has_value) argument.flag = flag_of_value(argument.flag, argument.value);
    arguments.push_back(argument);
  }
  return arguments;
}

Status TrainingArguments::set(const FlagArgument& argument) {
  const Result<std::string> normal = check_argument(argument);
  if (!normal.ok()) return normal.error();
  if (argument.flag->refused) return {};
  assign(settings_, *argument.flag, *normal);
  set_.emplace(argument.flag->name);
  return {};
}

Status TrainingArguments::read_json_file(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxArgumentFileBytes, ExitCode::kUsage);
  if (!text.ok()) return text.error();
  if (nests_too_deep(*text)) {
    return Error{ExitCode::kUsage,
                 fmt::format("{}: the JSON nests deeper than {} levels", path, kMaxJsonDepth)};
  }
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const bool has_nul = text->find('\0') != std::string::npos;  // the parser would end there
  if (!json.is_object() || has_nul) {
    const std::string found = has_nul          ? "a NUL byte"
                              : is_utf8(*text) ? describe_json(*text)
                                               : "bytes that are not UTF-8";
    return Error{ExitCode::kUsage,
                 fmt::format("{}: found {}, expected a JSON object of flags", path, found)};
  }
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    const TrainingFlag* flag = find_training_flag(name);
    std::string word = value.is_string() ? value.get<std::string>() : value.dump();
    flag = flag_of_value(flag, word);
    // Of flags that do not work, a dumped TrainingArguments has lists and objects.
    const bool dumped = flag != nullptr && !flag->works() && value.is_structured();
    if (dumped && is_neutral_json(*flag, word)) continue;
    if (flag != nullptr && flag->accepted_without_effect) {
      if (flag->type == FlagType::kString) word.clear();  // of any type; nothing reads it
    } else if (flag != nullptr && !dumped && !accepts_json(*flag, value)) {
      return Error{ExitCode::kUsage,
                   fmt::format("{}: {}: found {}, expected {}{}", path, name, excerpt(value.dump()),
                               describe_expected(*flag), describe_quoted_value(*flag, value))};
    }
    if (const Status outcome = set({.name = name, .flag = flag, .value = word}); !outcome.ok()) {
      return Error{outcome.error().code, fmt::format("{}: {}", path, outcome.error().message)};
    }
  }
  return {};
}

Result<TrainingArguments> TrainingArguments::parse(std::span<const std::string> arguments) {
  TrainingArguments parsed;
  bool first = true;
  for (const FlagArgument& argument : split_command_line(arguments)) {
    const bool file = argument.name == kConfigFlag ||
                      (first && argument.name.empty() && argument.value.ends_with(".json"));
    first = false;
    Status outcome;
    if (file && !argument.has_value) {
      outcome = Error{ExitCode::kUsage, "--config: found no value, expected a JSON file of flags"};
    } else if (file) {
      outcome = parsed.read_json_file(std::string(argument.value));
    } else if (argument.name.empty()) {
      outcome = Error{ExitCode::kUsage, fmt::format("found the argument {}, expected --flag=value",
                                                    quoted_excerpt(argument.value))};
    } else {
      outcome = parsed.set(argument);
    }
    if (!outcome.ok()) return outcome.error();
  }
  return parsed;
}

std::string setting_value(const TrainingSettings& settings, const TrainingFlag& flag) {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          TW_CHECK(false, "--{} has no value", flag.name);
          return "";
        } else {
          return fmt::format("{}", settings.*member);
        }
      },
      flag.member);
}

void TrainingArguments::expand_home(const GetVariable& variable) {
  for (const TrainingFlag& flag : training_flags()) {
    const auto* member = std::get_if<std::string TrainingSettings::*>(&flag.member);
    if (!flag.is_path() || member == nullptr) continue;
    std::string& path = settings_.**member;
    path = tilewright::expand_home(std::move(path), variable);
  }
}

std::string TrainingArguments::note() const {
  std::string names;
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.accepted_without_effect || !is_set(flag.name)) continue;
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", flag.name);
  }
  return names.empty() ? "" : names + ": no effect, see docs/reference.md";
}

}  // namespace tilewright
