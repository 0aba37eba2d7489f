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
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxValueBytes = 4096;  // PATH_MAX
constexpr std::uint64_t kMaxArgumentFileBytes = 1 << 20;

// The words that HfArgumentParser reads as booleans, in lower case.
constexpr std::array<std::string_view, 5> kTrueWords = {"true", "yes", "t", "y", "1"};
constexpr std::array<std::string_view, 5> kFalseWords = {"false", "no", "f", "n", "0"};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  }
  return lower;
}

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

// Whether a refused flag is switched off, so that a command line may have it.
bool is_neutral(const TrainingFlag& flag, std::string_view normal) {
  if (flag.type == FlagType::kBool) return normal == "false";
  if (flag.type == FlagType::kString) return normal.empty() || lower_case(normal) == "none";
  return normal == "0" || normal == "-1";
}

std::string describe_range(const TrainingFlag& flag, std::string_view noun) {
  if (flag.minimum <= -kNoMaximum) return std::string(noun);
  std::string range = flag.maximum >= kNoMaximum
                          ? fmt::format("{} of at least {}", noun, flag.minimum)
                          : fmt::format("{} from {} to {}{}", noun, flag.minimum,
                                        flag.exclusive_maximum ? "below " : "", flag.maximum);
  if (flag.allows_minus_one) range += ", or -1";
  return range;
}

Error unexpected(const TrainingFlag& flag, std::string_view value) {
  const std::string_view shown = value.substr(0, 100);
  return {ExitCode::kUsage,
          fmt::format("found {}, expected {}", shown.empty() ? std::string_view("nothing") : shown,
                      describe_expected(flag))};
}

bool in_range(const TrainingFlag& flag, double value) {
  if (flag.allows_minus_one && value == -1) return true;
  return value >= flag.minimum &&
         (flag.exclusive_maximum ? value < flag.maximum : value <= flag.maximum);
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
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
            // Parses a double and rounds it to the nearest float.
            double number = 0;
            TW_CHECK(parse_number(std::string_view(normal), number), "--{}={}", flag.name, normal);
            target = static_cast<float>(number);
          } else {
            TW_CHECK(parse_number(std::string_view(normal), target), "--{}={}", flag.name, normal);
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
      return describe_range(flag, "a number");
    case FlagType::kString:
      return fmt::format("a string of up to {} bytes", kMaxValueBytes);
    case FlagType::kChoice:
      return fmt::format("one of {}", fmt::join(flag.choices, ", "));
  }
  return "";
}

std::string describe_quoted_value(const TrainingFlag& flag, std::string_view value,
                                  bool is_string) {
  const bool quoted = is_string && flag.type != FlagType::kString &&
                      flag.type != FlagType::kChoice && normalize_flag_value(flag, value).ok();
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
      if (parse_number(value, number) && in_range(flag, static_cast<double>(number))) {
        return fmt::format("{}", number);
      }
      break;
    }
    case FlagType::kFloat: {
      double number = 0;
      if (parse_number(value, number) && std::isfinite(number) && in_range(flag, number)) {
        return fmt::format("{}", number);  // shortest form that parses to the same number
      }
      break;
    }
    case FlagType::kString:
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
  const auto [index, name, flag, value, has_value] = argument;
  if (flag == nullptr) {
    const std::string_view nearest = nearest_training_flag(name);
    return Error{ExitCode::kUsage,
                 fmt::format("--{}: unknown flag{}", name.substr(0, 100),
                             nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest))};
  }
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
    argument.flag = find_training_flag(argument.name);
    const bool boolean = argument.flag != nullptr && argument.flag->type == FlagType::kBool;
    if (equals != std::string_view::npos) {
      argument.value = word.substr(equals + 1);
    } else if (argument.flag == nullptr && negated(argument.name) != nullptr) {
      argument.flag = negated(argument.name);
      argument.value = "false";
    } else if (i + 1 < kept.size() && is_value(words[kept[i + 1]])) {
      argument.value = words[kept[++i]];
    } else {
      argument.value = boolean ? "true" : "";
      argument.has_value = boolean;
    }
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
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) {
    return Error{ExitCode::kUsage,
                 fmt::format("{}: found {}, expected a JSON object of flags", path,
                             json.is_discarded() ? "invalid JSON" : json.type_name())};
  }
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    const TrainingFlag* flag = find_training_flag(name);
    std::string word = value.is_string() ? value.get<std::string>() : value.dump();
    if (flag != nullptr && !flag->accepted_without_effect) {
      const bool fits = flag->type == FlagType::kBool    ? value.is_boolean()
                        : flag->type == FlagType::kInt   ? value.is_number_integer()
                        : flag->type == FlagType::kFloat ? value.is_number()
                                                         : value.is_string();
      if (!fits) {
        return Error{ExitCode::kUsage,
                     fmt::format("{}: {}: found {}, expected {}{}", path, name,
                                 value.dump().substr(0, 100), describe_expected(*flag),
                                 describe_quoted_value(*flag, word, value.is_string()))};
      }
    } else if (flag != nullptr && flag->type == FlagType::kString) {
      word.clear();  // a list or an object, which nothing reads
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
      outcome =
          Error{ExitCode::kUsage, fmt::format("found the argument \"{}\", expected --flag=value",
                                              argument.value.substr(0, 100))};
    } else {
      outcome = parsed.set(argument);
    }
    if (!outcome.ok()) return outcome.error();
  }
  return parsed;
}

std::string TrainingArguments::value_of(const TrainingFlag& flag) const {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          TW_CHECK(false, "--{} has no value", flag.name);
          return "";
        } else {
          return fmt::format("{}", settings_.*member);
        }
      },
      flag.member);
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
