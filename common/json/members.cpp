#include "common/json/members.h"

namespace tilewright {

using nlohmann::json;

const json& member(const json& object, const char* name) {
  static const json kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::string string_member(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

const json& element_with(const json& array, const char* name, std::string_view value) {
  static const json kNothing;
  if (!array.is_array()) return kNothing;
  for (const json& element : array) {
    if (string_member(element, name) == value) return element;
  }
  return kNothing;
}

std::string metadata_string(const json& object, const char* name) {
  return string_member(member(object, "metadata"), name);
}

}  // namespace tilewright
