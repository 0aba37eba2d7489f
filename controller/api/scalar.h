// What a plain (unquoted) YAML scalar means, as kubectl reads it: YAML 1.1's core types.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright::api {

// null, a boolean, a whole number, a number, or the text itself. Numbers that do not fit 64 bits,
// and infinities, stay text.
nlohmann::json resolve_plain_scalar(std::string_view text);

}  // namespace tilewright::api
