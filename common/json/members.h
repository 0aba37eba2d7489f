// Access to members of JSON objects that may be missing or have another type.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewright {

// null if the member is missing or `object` is not an object.
const nlohmann::json& member(const nlohmann::json& object, const char* name);

// Empty if the member is missing or not a string.
std::string string_member(const nlohmann::json& object, const char* name);

// The first element of an array whose string member `name` is `value`; null if there is none, or if
// `array` is not an array.
const nlohmann::json& element_with(const nlohmann::json& array, const char* name,
                                   std::string_view value);

// The string member `name` of object.metadata; empty if it is missing or not a string.
std::string metadata_string(const nlohmann::json& object, const char* name);

}  // namespace tilewright
