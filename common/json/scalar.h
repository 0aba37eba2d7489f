// Determines the type of a plain (unquoted) YAML scalar as kubectl does, with the core types of
// YAML 1.1.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright {

// null, a boolean, an integer, a number or a string. A number with an integral value is an integer
// if an int64 holds it and a double otherwise. Infinity and NaN, which kubectl refuses, stay
// strings.
nlohmann::json resolve_plain_scalar(std::string_view text);

}  // namespace tilewright
