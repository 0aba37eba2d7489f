// The names Kubernetes takes (RFC 1123 and 1035 labels, qualified names).
#pragma once

#include <string_view>

namespace tilewright::api {

// Lower-case letters, digits and '-', a letter or digit at both ends, at most 63.
bool is_dns1123_label(std::string_view name);
// Such labels joined by dots, at most 253.
bool is_dns1123_subdomain(std::string_view name);
// A label that begins with a letter, as names of Services do.
bool is_dns1035_label(std::string_view name);
// A label key: [subdomain/]name, the name up to 63 letters, digits, '-', '_', '.'.
bool is_label_key(std::string_view key);
// Empty, or like the name of a key.
bool is_label_value(std::string_view value);
// Of an environment variable: printable ASCII without '='.
bool is_env_name(std::string_view name);

}  // namespace tilewright::api
