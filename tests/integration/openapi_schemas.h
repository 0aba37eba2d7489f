// Writes JSON schemas of Kubernetes' built-in kinds for kubeconform from the API server's OpenAPI
// document, because tests may run without network access.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace tilewright::testing {

inline constexpr std::string_view kRefPrefix = "#/definitions/";

// Converts to strict JSON Schema: unknown fields are errors.
inline void make_strict(nlohmann::json& schema) {
  if (!schema.is_object()) return;
  const auto fields = schema.find("properties");
  if (fields != schema.end()) {
    for (auto& [name, field] : fields->items()) make_strict(field);
    if (!schema.contains("additionalProperties")) schema["additionalProperties"] = false;
  }
  for (const char* part : {"items", "additionalProperties"}) {
    if (schema.contains(part)) make_strict(schema[part]);
  }
  if (schema.value("format", "") == "int-or-string") {
    schema.erase("format");
    schema["type"] = {"integer", "string"};
  }
}

inline void collect_refs(const nlohmann::json& schema, std::set<std::string>& names) {
  if (!schema.is_structured()) return;
  const auto reference = schema.find("$ref");
  if (schema.is_object() && reference != schema.end() && reference->is_string()) {
    names.insert(reference->get<std::string>().substr(kRefPrefix.size()));
  }
  for (const nlohmann::json& part : schema) collect_refs(part, names);
}

// The definitions that the kind's schema refers to, directly or indirectly.
inline nlohmann::json referenced_definitions(const nlohmann::json& definitions,
                                             const std::string& name) {
  nlohmann::json found = nlohmann::json::object();
  std::set<std::string> open = {name};
  while (!open.empty()) {
    const std::string next = *open.begin();
    open.erase(open.begin());
    if (found.contains(next)) continue;
    found[next] = definitions.at(next);
    collect_refs(found[next], open);
  }
  return found;
}

// Writes one file per kind into the folder; returns the template of their names.
inline std::string write_schemas(const nlohmann::json& openapi,
                                 const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  nlohmann::json definitions = openapi.at("definitions");
  for (auto& [name, schema] : definitions.items()) make_strict(schema);
  for (const auto& [name, schema] : definitions.items()) {
    const auto kinds = schema.find("x-kubernetes-group-version-kind");
    if (kinds == schema.end() || kinds->size() != 1) continue;  // lists and options
    const nlohmann::json& kind = kinds->front();
    const std::string version = kind.at("version");
    const std::string group = kind.value("group", "").empty() ? version : kind.value("group", "");
    std::string lower = kind.at("kind");
    for (char& letter : lower) {
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter | 0x20);
    }
    const nlohmann::json file = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                                 {"$ref", std::string(kRefPrefix) + name},
                                 {"definitions", referenced_definitions(definitions, name)}};
    std::ofstream(folder / (group + "_" + version + "_" + lower + ".json")) << file;
  }
  return (folder / "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json").string();
}

}  // namespace tilewright::testing
