#include "controller/client/resource.h"

namespace tilewright::kube {

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return encoded;
}

std::string path_of(const ResourceType& type, std::string_view namespace_name,
                    std::string_view name, std::string_view subresource) {
  std::string path = type.group.empty() ? "/api" : "/apis";
  const auto add = [&path](std::string_view part) {
    path += '/';
    path += part;
  };
  if (!type.group.empty()) add(type.group);
  add(type.version);
  if (type.namespaced && !namespace_name.empty()) {
    add("namespaces");
    add(percent_encode(namespace_name));
  }
  add(type.plural);
  if (!name.empty()) add(percent_encode(name));
  if (!subresource.empty()) add(percent_encode(subresource));
  return path;
}

std::string query_string(const Query& query) {
  std::string text;
  for (const auto& [name, value] : query) {
    text += text.empty() ? '?' : '&';
    text += percent_encode(name);
    text += '=';
    text += percent_encode(value);
  }
  return text;
}

std::string describe_resource(const ResourceType& type, std::string_view namespace_name,
                              std::string_view name) {
  std::string text = type.plural;
  if (!namespace_name.empty() || !name.empty()) text += ' ';
  text += namespace_name;
  if (!namespace_name.empty() && !name.empty()) text += '/';
  text += name;
  return text;
}

}  // namespace tilewright::kube
