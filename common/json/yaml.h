// Writes JSON as YAML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewright {

// Block style with sorted keys. Quotes strings that YAML would read as another type (no, 1e3, ~).
std::string to_yaml(const nlohmann::json& tree);

}  // namespace tilewright
