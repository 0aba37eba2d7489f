#include "common/contract/training_flags.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxValueBytes = 4096;  // a path's longest

std::string describe_range(const TrainingFlag& flag, std::string_view noun) {
  std::string text = flag.maximum >= kUnbounded
                         ? fmt::format("{} of at least {}", noun, flag.minimum)
                         : fmt::format("{} from {} to {}{}", noun, flag.minimum,
                                       flag.below_maximum ? "below " : "", flag.maximum);
  if (flag.or_minus_one) text += ", or -1";
  return text;
}

Error unexpected(const TrainingFlag& flag, std::string_view text) {
  const std::string_view shown = text.substr(0, 100);
  return {ExitCode::kUsage,
          fmt::format("found {}, expected {}", shown.empty() ? std::string_view("nothing") : shown,
                      describe_expected(flag))};
}

bool in_range(const TrainingFlag& flag, double value) {
  if (flag.or_minus_one && value == -1) return true;
  return value >= flag.minimum &&
         (flag.below_maximum ? value < flag.maximum : value <= flag.maximum);
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
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
      return describe_range(flag, "a whole number");
    case FlagType::kFloat:
      return describe_range(flag, "a number");
    case FlagType::kString:
      return fmt::format("a text of up to {} bytes", kMaxValueBytes);
    case FlagType::kChoice:
      return fmt::format("one of {}", fmt::join(flag.choices, ", "));
  }
  return "";
}

Result<std::string> normalise_flag(const TrainingFlag& flag, std::string_view text) {
  switch (flag.type) {
    case FlagType::kBool:
      if (text == "true" || text == "True" || text == "1") return std::string("true");
      if (text == "false" || text == "False" || text == "0") return std::string("false");
      break;
    case FlagType::kInt: {
      std::int64_t number = 0;
      if (parse_number(text, number) && in_range(flag, static_cast<double>(number))) {
        return fmt::format("{}", number);
      }
      break;
    }
    case FlagType::kFloat: {
      double number = 0;
      if (parse_number(text, number) && std::isfinite(number) && in_range(flag, number)) {
        return fmt::format("{}", number);  // the shortest text that reads back as the same number
      }
      break;
    }
    case FlagType::kString:
      if (text.size() <= kMaxValueBytes && text.find('\0') == std::string_view::npos) {
        return std::string(text);
      }
      break;
    case FlagType::kChoice:
      for (const std::string_view choice : flag.choices) {
        if (choice == text) return std::string(text);
      }
      break;
  }
  return unexpected(flag, text);
}

Status TrainingArguments::set(std::string_view name, std::string_view text) {
  const TrainingFlag* flag = find_training_flag(name);
  if (flag == nullptr) {
    const std::string_view near = nearest_training_flag(name);
    return Error{ExitCode::kUsage,
                 fmt::format("--{}: there is no such flag{}", name.substr(0, 100),
                             near.empty() ? "" : fmt::format("; did you mean --{}?", near))};
  }
  Result<std::string> normal = normalise_flag(*flag, text);
  if (!normal.ok()) {
    return Error{normal.error().code, fmt::format("--{}: {}", name, normal.error().message)};
  }
  values_[std::string(name)] = std::move(normal).value();
  return {};
}

Result<TrainingArguments> TrainingArguments::parse(std::span<const std::string> arguments) {
  TrainingArguments parsed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (!word.starts_with("--") || word.size() == 2) {
      return Error{ExitCode::kUsage, fmt::format("found the argument {}, expected --flag=value",
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

std::string TrainingArguments::value(std::string_view name, FlagType type) const {
  const TrainingFlag* flag = find_training_flag(name);
  TW_CHECK(flag != nullptr && flag->type == type, "no training flag --{} of the type asked for",
           name);
  const auto found = values_.find(name);
  return found == values_.end() ? std::string(flag->default_value) : found->second;
}

bool TrainingArguments::boolean(std::string_view name) const {
  return value(name, FlagType::kBool) == "true";
}

std::int64_t TrainingArguments::integer(std::string_view name) const {
  std::int64_t number = 0;
  TW_CHECK(parse_number(value(name, FlagType::kInt), number), "--{} is not in normal form", name);
  return number;
}

double TrainingArguments::number(std::string_view name) const {
  double number = 0;
  TW_CHECK(parse_number(value(name, FlagType::kFloat), number), "--{} is not in normal form", name);
  return number;
}

std::string TrainingArguments::text(std::string_view name) const {
  const TrainingFlag* flag = find_training_flag(name);
  const bool choice = flag != nullptr && flag->type == FlagType::kChoice;
  return value(name, choice ? FlagType::kChoice : FlagType::kString);
}

}  // namespace tilewright
