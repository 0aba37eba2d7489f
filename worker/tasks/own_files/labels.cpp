#include "worker/tasks/own_files/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/base/printable.h"
#include "common/base/result.h"

namespace tilewright::tasks::own_files {
namespace {

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

bool may_be_number(ValueKind kind) {
  return kind == ValueKind::kField || kind == ValueKind::kInteger || kind == ValueKind::kReal;
}

}  // namespace

std::string label_name(LabelType type, const Value& value) {
  if (type == LabelType::kIntegers && may_be_number(value.kind)) {
    if (const auto integer = parse<std::int64_t>(number_text(value))) {
      return std::to_string(*integer);
    }
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
  const std::string_view number = number_text(value);
  all_numbers_ = all_numbers_ && may_be_number(value.kind) && parse<double>(number).has_value();
  all_integers_ = all_integers_ && all_numbers_ && value.kind != ValueKind::kReal &&
                  parse<std::int64_t>(number).has_value();
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
      integers.insert(*parse<std::int64_t>(number_text({ValueKind::kField, text})));
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
