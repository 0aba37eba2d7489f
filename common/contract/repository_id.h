// Names of models and data sets on the Hugging Face hub.
#pragma once

#include <string_view>

namespace tilewright {

// Whether `id` is NAME or ORG/NAME of letters, digits, '.', '_' and '-', as huggingface_hub allows:
// NAME has at most 96 characters, and no part begins or ends with '.' or '-', or holds ".." or
// "--".
bool is_repository_id(std::string_view id);

// The same rule as a regular expression (RE2), without that for ".." and "--".
inline constexpr std::string_view kRepositoryIdPattern =
    "^([A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?/"
    ")?[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?$";

}  // namespace tilewright
