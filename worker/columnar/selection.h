// Which columns of a file a caller reads.
#pragma once

#include <string>
#include <vector>

#include "worker/columnar/location.h"

namespace tilewright::columnar {

// Columns by their names or by the name of a struct that contains them ("answers" selects
// "answers.text"). An empty selection means all columns.
struct Selection {
  std::vector<std::string> required, optional;
};

// For each of the file's columns, whether it is selected. Throws Failure(kData) if a required name
// selects no column, or if there are none.
std::vector<bool> select_columns(const std::vector<std::string>& names, const Selection& selection,
                                 const Location& location);

}  // namespace tilewright::columnar
