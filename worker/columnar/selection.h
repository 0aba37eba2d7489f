// Which columns of a file a caller reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/columnar/location.h"

namespace tilewright::columnar {

// For each of the file's columns, whether it is selected: by its name, by the name of a struct that
// contains it ("answers" selects "answers.text"), or because `selected` is empty. Throws
// Failure(kData) if a name selects no column, or if there are none.
std::vector<bool> select_columns(const std::vector<std::string>& names,
                                 std::span<const std::string> selected, const Location& location);

}  // namespace tilewright::columnar
