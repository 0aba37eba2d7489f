#include "controller/api/names.h"

#include "controller/api/characters.h"

namespace tilewright::api {
namespace {

constexpr std::size_t kMaxLabel = 63;
constexpr std::size_t kMaxSubdomain = 253;

bool is_qualified_part(std::string_view text) {
  const auto end = [](char c) { return is_letter(c) || is_digit(c); };
  if (text.empty() || text.size() > kMaxLabel || !end(text.front()) || !end(text.back())) {
    return false;
  }
  for (const char c : text) {
    if (!end(c) && c != '-' && c != '_' && c != '.') return false;
  }
  return true;
}

bool is_subdomain_part(std::string_view text) {
  if (text.empty() || text.front() == '-' || text.back() == '-') return false;
  for (const char c : text) {
    if (!is_lower(c) && !is_digit(c) && c != '-') return false;
  }
  return true;
}

}  // namespace

bool is_dns1123_label(std::string_view name) {
  return name.size() <= kMaxLabel && is_subdomain_part(name);
}

bool is_dns1123_subdomain(std::string_view name) {
  if (name.size() > kMaxSubdomain) return false;
  while (true) {
    const std::size_t dot = name.find('.');
    if (!is_subdomain_part(name.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

bool is_dns1035_label(std::string_view name) {
  return is_dns1123_label(name) && is_lower(name.front());
}

bool is_label_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos) return is_qualified_part(key);
  return is_dns1123_subdomain(key.substr(0, slash)) && is_qualified_part(key.substr(slash + 1));
}

bool is_label_value(std::string_view value) { return value.empty() || is_qualified_part(value); }

bool is_gpu_resource(std::string_view name) {
  return name.find("/gpu") != std::string_view::npos || name.starts_with("nvidia.com/");
}

bool is_env_name(std::string_view name) {
  if (name.empty()) return false;
  for (const char c : name) {
    if (c < ' ' || c > '~' || c == '=') return false;
  }
  return true;
}

}  // namespace tilewright::api
