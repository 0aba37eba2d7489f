// Finds out what the labels of a table are, and their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/rows/rows.h"

namespace tilewright::tasks::own_files {

enum class LabelType { kNames, kBooleans, kIntegers, kNumbers };

struct Labels {
  LabelType type = LabelType::kNames;
  // In order: integers by value, others by bytes. Empty for numbers, the values of a regression.
  std::vector<std::string> names;
  bool all_whole = false;  // the numbers are integers, of which one at least is not written as one
};

// Collects the labels of all training rows. As in run_glue, numbers of which one is not an integer
// make a regression; all else are classes. Fields that all spell true or false, in any case, are
// booleans.
class LabelFinder {
 public:
  // The label of the current row. Throws Failure(kData) if it is missing, not a scalar, or not of
  // the type of those before.
  void add(const RowSource& rows, const Value& value);

  // `rows`: for messages. Throws Failure(kData) if there are less than two classes or too many, if
  // the labels are integers of which one has more than 64 bits, or if they are numbers except for a
  // word by which pandas knows a missing one.
  Labels finish(const RowSource& rows) const;

 private:
  LabelType type() const;

  std::string_view type_;     // in JSON or a table; empty: fields of a text file
  std::string out_of_range_;  // the message for the first integer of more than 64 bits
  std::string missing_;       // the message for the first word for a missing number
  bool all_booleans_ = true;
  bool all_integers_ = true;
  bool all_numbers_ = true;
  bool all_whole_ = true;
  std::set<std::string> distinct_;  // at most one more than checkpoint::kMaxLabels
};

// The type of a trained model's labels, at least two: kIntegers or kBooleans if all are as
// label_name() gives them, else kNames.
LabelType type_of_names(const std::vector<std::string>& names);

// The name under which Labels has this value: an integer as its decimal form, a boolean as "True"
// or "False".
std::string label_name(LabelType type, const Value& value);

}  // namespace tilewright::tasks::own_files
