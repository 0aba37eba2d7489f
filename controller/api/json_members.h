// Members of objects as the API server or a user wrote them: any may be missing or of any type.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewright::api {

// null where there is none, or where `object` is no object.
const nlohmann::json& member(const nlohmann::json& object, const char* name);

// Empty where there is none, or where it is no text.
std::string text_member(const nlohmann::json& object, const char* name);

// The same of the object's metadata.
std::string metadata_text(const nlohmann::json& object, const char* name);

}  // namespace tilewright::api
