// The known name nearest to a misspelt one, for "did you mean".
#pragma once

#include <string_view>
#include <vector>

namespace tilewright {

// The candidate with the smallest edit distance (Damerau's: insert, delete, replace, swap
// neighbours), letters compared without case and without '_' and '-'. Empty when the nearest is
// further than a third of the longer name, or 2 for short names.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

}  // namespace tilewright
