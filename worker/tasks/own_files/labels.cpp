#include "worker/tasks/own_files/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/base/printable.h"
#include "common/base/result.h"

namespace tilewright::tasks::own_files {
namespace {

std::optional<std::int64_t> integer_of(const Value& value) {
  std::int64_t number = 0;
  const std::string_view text = number_text(value);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string label_name(LabelType type, const Value& value) {
  if (type == LabelType::kIntegers && is_number(value)) {
    if (const auto integer = integer_of(value)) return std::to_string(*integer);
  }
  return std::string(value.text);
}

void LabelFinder::add(const RowSource& rows, const Value& value) {
  if (value.kind == ValueKind::kMissing || value.text.empty()) {
    rows.fail("the label is missing, expected one in each row");
  }
  if (value.kind == ValueKind::kOther) {
    rows.fail(fmt::format("the label is {}, expected a string or a number", value.text));
  }
  const bool is_string = value.kind == ValueKind::kString || value.kind == ValueKind::kBoolean;
  has_strings_ = has_strings_ || is_string;
  has_numbers_ =
      has_numbers_ || value.kind == ValueKind::kInteger || value.kind == ValueKind::kReal;
  if (has_strings_ && has_numbers_) {
    rows.fail(fmt::format("the label {} is a {}, expected a {} as in the rows before",
                          excerpt(value.text), is_string ? "string" : "number",
                          is_string ? "number" : "string"));
  }
  all_numbers_ = all_numbers_ && is_number(value);
  all_integers_ = all_integers_ && all_numbers_ && value.kind != ValueKind::kReal &&
                  integer_of(value).has_value();
  if (distinct_.size() <= kMaxLabels) distinct_.emplace(value.text);
}

Labels LabelFinder::finish(const RowSource& rows) const {
  Labels labels;
  if (all_numbers_ && !all_integers_) {
    labels.type = LabelType::kNumbers;
    return labels;
  }
  const auto fail = [&](const std::string& message) {
    throw Failure(ExitCode::kData, fmt::format("{}: {}", rows.name(), message));
  };
  if (distinct_.size() > kMaxLabels) {
    fail(fmt::format("found more than {} different labels", kMaxLabels));
  }
  labels.type = all_integers_ ? LabelType::kIntegers : LabelType::kNames;
  if (all_integers_) {
    std::set<std::int64_t> integers;  // different digits may give the same one
    for (const std::string& text : distinct_) {
      integers.insert(integer_of({ValueKind::kField, text}).value());
    }
    for (const std::int64_t integer : integers) labels.names.push_back(std::to_string(integer));
  } else {
    labels.names.assign(distinct_.begin(), distinct_.end());
  }
  if (labels.names.size() < 2) {
    fail(fmt::format("all labels are {}, expected at least two different ones",
                     quoted_excerpt(labels.names.front())));
  }
  return labels;
}

}  // namespace tilewright::tasks::own_files
