// A column of a table: values of one type, a value or a list of values per row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/columnar/budget.h"

namespace tilewright::columnar {

// Limit of nested types in the schema of a file.
inline constexpr int kMaxSchemaDepth = 16;

enum class ValueType { kString, kInteger, kReal, kBoolean };
std::string_view to_string(ValueType type);  // "strings", "integers"

// Strings in one buffer.
class Strings {
 public:
  std::size_t size() const { return ends_.size() - 1; }
  std::string_view operator[](std::size_t i) const {
    return {text_.data() + ends_[i], static_cast<std::size_t>(ends_[i + 1] - ends_[i])};
  }

  void add(std::string_view string) {
    text_.insert(text_.end(), string.begin(), string.end());
    ends_.push_back(text_.size());
  }

 private:
  std::vector<char> text_;
  std::vector<std::uint64_t> ends_ = {0};  // of string i - 1, and the begin of string i
};

// The values of the rows follow each other. A null row has a value too, an empty string or zero;
// a null list has no values. Lists contain no nulls.
class Column {
 public:
  // `name` is the path of the column in its structs, "answers.text".
  Column(std::string name, ValueType type, bool list)
      : name_(std::move(name)), type_(type), list_(list) {}

  const std::string& name() const { return name_; }
  ValueType type() const { return type_; }
  bool is_list() const { return list_; }
  std::size_t rows() const { return valid_.size(); }
  bool is_null(std::size_t row) const { return valid_[row] == 0; }
  std::size_t null_count() const { return null_count_; }

  // The values of the column's type; the others are empty. Booleans are integers 0 and 1.
  const Strings& strings() const { return strings_; }
  std::span<const std::int64_t> integers() const { return integers_; }
  std::span<const double> reals() const { return reals_; }
  // Of a list column: the values of row r are those from list_offsets()[r] to
  // list_offsets()[r + 1], so there are rows() + 1 offsets.
  std::span<const std::uint64_t> list_offsets() const { return list_offsets_; }
  std::size_t values() const;

  // For the readers. Each throws Failure(kData) if the table exceeds its budget.
  struct Limit {
    Budget& budget;
    const Location& location;
  };
  void add_string(std::string_view value, const Limit& limit) {
    limit.budget.take(value.size() + sizeof(std::uint64_t), limit.location);
    strings_.add(value);
  }
  void add_integer(std::int64_t value, const Limit& limit) {
    limit.budget.take(sizeof value, limit.location);
    integers_.push_back(value);
  }
  void add_real(double value, const Limit& limit) {
    limit.budget.take(sizeof value, limit.location);
    reals_.push_back(value);
  }
  // Copies a value of another column of the same type.
  void add_value_of(const Column& other, std::size_t value, const Limit& limit);
  // Rows that are not null; their values are added separately.
  void add_rows(std::size_t count, const Limit& limit);
  void add_null_row(const Limit& limit);
  // A row of a list column, whose values are counted by extend_list().
  void begin_list(bool valid, const Limit& limit);
  void extend_list(std::uint64_t values) { list_offsets_.back() += values; }

 private:
  std::string name_;
  ValueType type_;
  bool list_;
  Strings strings_;
  std::vector<std::int64_t> integers_;
  std::vector<double> reals_;
  std::vector<std::uint64_t> list_offsets_ = {0};
  std::vector<std::uint8_t> valid_;
  std::size_t null_count_ = 0;
};

}  // namespace tilewright::columnar
