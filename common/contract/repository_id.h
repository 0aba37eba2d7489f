// Names of models and data sets on the Hugging Face hub.
#pragma once

#include <cstddef>
#include <string_view>

namespace tilewright {

// Whether `id` is NAME or ORG/NAME of letters, digits, '.', '_' and '-', as the hub allows. At most
// 96 characters; no part begins or ends with '.' or '-', or holds ".." or "--".
bool is_repository_id(std::string_view id);

// The same rule as a regular expression (RE2), without the maximum length and the rule for ".." and
// "--".
inline constexpr std::string_view kRepositoryIdPattern =
    "^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?(/[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?)?$";
inline constexpr std::size_t kMaxRepositoryIdBytes = 96;

}  // namespace tilewright
