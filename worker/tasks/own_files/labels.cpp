#include "worker/tasks/own_files/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "worker/checkpoint/model_config.h"

namespace tilewright::tasks::own_files {
namespace {

std::optional<std::int64_t> integer_of(const Value& value) {
  return parse_number<std::int64_t>(number_text(value));
}

// As pandas reads a field: without blanks around it.
std::optional<bool> boolean_of(const Value& value) {
  if (value.kind != ValueKind::kField && value.kind != ValueKind::kBoolean) return std::nullopt;
  if (equal_ignoring_case(value.text, "true")) return true;
  if (equal_ignoring_case(value.text, "false")) return false;
  return std::nullopt;
}

// Empty for a field of a text file.
std::string_view json_type(ValueKind kind) {
  switch (kind) {
    case ValueKind::kString:
      return "string";
    case ValueKind::kInteger:
    case ValueKind::kReal:
      return "number";
    case ValueKind::kBoolean:
      return "boolean";
    default:
      return "";
  }
}

// Of any size.
bool is_integer(const Value& value) {
  return is_number(value) && value.kind != ValueKind::kReal &&
         number_text(value).find_first_not_of("-0123456789") == std::string_view::npos;
}

// The values that pandas.read_csv() takes as missing unless na_values says otherwise.
bool is_word_for_missing(std::string_view text) {
  constexpr std::array<std::string_view, 18> kWords = {
      "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
      "<NA>", "N/A",      "NA",  "NULL",    "NaN",      "None", "n/a",  "nan",    "null"};
  return std::ranges::find(kWords, text) != kWords.end();
}

// Also 1.0, as pandas writes the integers of a column with a missing value.
bool is_whole(const Value& value) {
  double number = 0;
  const std::string_view text = number_text(value);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return is_number(value) && error == std::errc() && std::trunc(number) == number;
}

}  // namespace

std::string label_name(LabelType type, const Value& value) {
  if (type == LabelType::kIntegers && is_number(value)) {
    if (const auto integer = integer_of(value)) return std::to_string(*integer);
  }
  if (type == LabelType::kBooleans) {
    if (const auto boolean = boolean_of(value)) return *boolean ? "True" : "False";
  }
  return std::string(value.text);
}

LabelType type_of_names(const std::vector<std::string>& names) {
  const auto is_integer_name = [](const std::string& name) {
    const auto integer = integer_of({ValueKind::kField, name});
    return integer && std::to_string(*integer) == name;
  };
  if (std::ranges::all_of(names, is_integer_name)) return LabelType::kIntegers;
  const auto is_boolean_name = [](const std::string& name) {
    return name == "True" || name == "False";
  };
  return std::ranges::all_of(names, is_boolean_name) ? LabelType::kBooleans : LabelType::kNames;
}

void LabelFinder::add(const RowSource& rows, const Value& value) {
  if (value.kind == ValueKind::kMissing || value.text.empty()) {
    rows.fail("the label is missing, expected one in each row");
  }
  if (value.kind == ValueKind::kOther) {
    rows.fail(fmt::format("the label is {}, expected a string or a number", excerpt(value.text)));
  }
  const std::string_view type = json_type(value.kind);
  if (type_.empty()) type_ = type;
  if (type != type_) {
    rows.fail(fmt::format("the label {} is a {}, expected a {} as in the rows before",
                          excerpt(value.text), type, type_));
  }
  if (distinct_.size() <= checkpoint::kMaxLabels) distinct_.emplace(value.text);
  if (value.kind == ValueKind::kField && is_word_for_missing(value.text)) {
    if (missing_.empty()) {
      missing_ =
          fmt::format("{}: the label is missing: found {}, expected a number as in other rows",
                      rows.location(), quoted_excerpt(value.text));
    }
    return;
  }
  all_booleans_ = all_booleans_ && boolean_of(value).has_value();
  all_numbers_ = all_numbers_ && is_number(value);
  all_integers_ = all_integers_ && is_integer(value);
  all_whole_ = all_whole_ && is_whole(value);
  if (is_integer(value) && !integer_of(value) && out_of_range_.empty()) {
    out_of_range_ =
        fmt::format("{}: the label is {}, expected integers from {} to {}", rows.location(),
                    excerpt(value.text), std::numeric_limits<std::int64_t>::min(),
                    std::numeric_limits<std::int64_t>::max());
  }
}

LabelType LabelFinder::type() const {
  if (!missing_.empty()) return LabelType::kNames;
  if (all_integers_) return LabelType::kIntegers;
  if (all_numbers_) return LabelType::kNumbers;
  return all_booleans_ ? LabelType::kBooleans : LabelType::kNames;
}

Labels LabelFinder::finish(const RowSource& rows) const {
  // Beside other words, or alone, a word for a missing number is a name.
  if (!missing_.empty() && all_numbers_ && !std::ranges::all_of(distinct_, is_word_for_missing)) {
    throw Failure(ExitCode::kData, missing_);
  }
  // Classes that only their size would turn into the values of a regression.
  if (all_integers_ && !out_of_range_.empty()) throw Failure(ExitCode::kData, out_of_range_);
  Labels labels{.type = type(), .names = {}, .all_whole = false};
  if (labels.type == LabelType::kNumbers) {
    labels.all_whole = all_whole_;
    return labels;
  }
  const auto fail = [&](const std::string& message) {
    throw Failure(ExitCode::kData, fmt::format("{}: {}", rows.name(), message));
  };
  if (distinct_.size() > checkpoint::kMaxLabels) {
    fail(fmt::format("found more than {} different labels", checkpoint::kMaxLabels));
  }
  if (labels.type == LabelType::kIntegers) {
    std::set<std::int64_t> integers;  // different digits may give the same one
    for (const std::string& text : distinct_) {
      integers.insert(integer_of({ValueKind::kField, text}).value());
    }
    for (const std::int64_t integer : integers) labels.names.push_back(std::to_string(integer));
  } else {
    std::set<std::string> names;
    for (const std::string& text : distinct_) {
      names.insert(label_name(labels.type, {ValueKind::kField, text}));
    }
    labels.names.assign(names.begin(), names.end());
  }
  if (labels.names.size() < 2) {
    fail(fmt::format("all labels are {}, expected at least two different ones",
                     quoted_excerpt(labels.names.front())));
  }
  return labels;
}

}  // namespace tilewright::tasks::own_files
