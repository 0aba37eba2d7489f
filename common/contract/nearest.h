// The known name closest to a misspelt one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

// The candidate with the smallest Damerau edit distance (insert, delete, replace, swap adjacent
// characters), ignoring case, '_' and '-'. Empty if no distance is at most max(2, length of the
// longer name / 3).
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

// For the end of a message: "; did you mean CANDIDATE?" with that candidate, or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace tilewright
