#include "worker/columnar/column.h"

namespace tilewright::columnar {

std::string_view to_string(ValueType type) {
  switch (type) {
    case ValueType::kString:
      return "strings";
    case ValueType::kInteger:
      return "integers";
    case ValueType::kReal:
      return "floating-point numbers";
    case ValueType::kBoolean:
      return "booleans";
  }
  return "";
}

std::size_t Column::values() const {
  if (type_ == ValueType::kString) return strings_.size();
  return type_ == ValueType::kReal ? reals_.size() : integers_.size();
}

void Column::add_value_of(const Column& other, std::size_t value, const Limit& limit) {
  switch (type_) {
    case ValueType::kString:
      return add_string(other.strings_[value], limit);
    case ValueType::kReal:
      return add_real(other.reals_[value], limit);
    case ValueType::kInteger:
    case ValueType::kBoolean:
      return add_integer(other.integers_[value], limit);
  }
}

void Column::add_rows(std::size_t count, const Limit& limit) {
  limit.budget.take(count, limit.location);
  valid_.insert(valid_.end(), count, 1);
}

void Column::add_null_row(const Limit& limit) {
  limit.budget.take(1, limit.location);
  valid_.push_back(0);
  ++null_count_;
  switch (type_) {
    case ValueType::kString:
      return add_string({}, limit);
    case ValueType::kReal:
      return add_real(0, limit);
    case ValueType::kInteger:
    case ValueType::kBoolean:
      return add_integer(0, limit);
  }
}

void Column::begin_list(bool valid, const Limit& limit) {
  limit.budget.take(1 + sizeof(std::uint64_t), limit.location);
  valid_.push_back(valid ? 1 : 0);
  if (!valid) ++null_count_;
  list_offsets_.push_back(list_offsets_.back());
}

}  // namespace tilewright::columnar
