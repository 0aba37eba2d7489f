// The known name closest to a misspelt one, for "did you mean".
#pragma once

#include <string_view>
#include <vector>

namespace tilewright {

// The candidate with the smallest Damerau edit distance (insert, delete, replace, swap adjacent
// characters), ignoring case, '_' and '-'. Empty if no distance is at most max(2, length of the
// longer name / 3).
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

}  // namespace tilewright
