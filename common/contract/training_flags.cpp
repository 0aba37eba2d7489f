#include "common/contract/training_flags.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <type_traits>

#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxValueBytes = 4096;  // PATH_MAX

std::string describe_range(const TrainingFlag& flag, std::string_view noun) {
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
      },
      flag.member);
}

}  // namespace

const TrainingFlag* find_training_flag(std::string_view name) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string_view nearest_training_flag(std::string_view name) {
  std::vector<std::string_view> names;
  for (const TrainingFlag& flag : training_flags()) names.push_back(flag.name);
  return nearest_name(name, names);
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

Result<std::string> normalize_flag_value(const TrainingFlag& flag, std::string_view value) {
  switch (flag.type) {
    case FlagType::kBool:
      if (value == "true" || value == "True" || value == "1") return std::string("true");
      if (value == "false" || value == "False" || value == "0") return std::string("false");
      break;
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
    case FlagType::kChoice:
      for (const std::string_view choice : flag.choices) {
        if (choice == value) return std::string(value);
      }
      break;
  }
  return unexpected(flag, value);
}

Status TrainingArguments::set(std::string_view name, std::string_view value) {
  const TrainingFlag* flag = find_training_flag(name);
  if (flag == nullptr) {
    const std::string_view nearest = nearest_training_flag(name);
    return Error{ExitCode::kUsage,
                 fmt::format("--{}: unknown flag{}", name.substr(0, 100),
                             nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest))};
  }
  const Result<std::string> normal = normalize_flag_value(*flag, value);
  if (!normal.ok()) {
    return Error{normal.error().code, fmt::format("--{}: {}", name, normal.error().message)};
  }
  assign(settings_, *flag, *normal);
  set_.emplace(name);
  return {};
}

Result<TrainingArguments> TrainingArguments::parse(std::span<const std::string> arguments) {
  TrainingArguments parsed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (!word.starts_with("--") || word.size() == 2) {
      return Error{ExitCode::kUsage, fmt::format("found the argument \"{}\", expected --flag=value",
                                                 word.substr(0, 100))};
    }
    word.remove_prefix(2);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const TrainingFlag* flag = find_training_flag(name);
    const bool alone = i + 1 == arguments.size() || arguments[i + 1].starts_with("--");
    Status outcome;
    if (equals != std::string_view::npos) {
      outcome = parsed.set(name, word.substr(equals + 1));
    } else if (flag != nullptr && flag->type == FlagType::kBool && alone) {
      outcome = parsed.set(name, "true");
    } else if (flag != nullptr && alone) {
      outcome = Error{ExitCode::kUsage, fmt::format("--{}: found no value, expected {}", name,
                                                    describe_expected(*flag))};
    } else {
      outcome = parsed.set(name, flag == nullptr ? "" : arguments[++i]);
    }
    if (!outcome.ok()) return outcome.error();
  }
  return parsed;
}

}  // namespace tilewright
