// Checks of Kubernetes names (RFC 1123 and RFC 1035 labels, qualified names).
#pragma once

#include <string_view>

namespace tilewright::api {

// 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends.
bool is_dns1123_label(std::string_view name);
// At most 253 characters: parts like RFC 1123 labels, but of any length, separated by dots.
bool is_dns1123_subdomain(std::string_view name);
// An RFC 1123 label that starts with a letter, such as the name of a Service.
bool is_dns1035_label(std::string_view name);
// [subdomain/]name, where the name has up to 63 letters, digits, '-', '_' and '.'.
bool is_label_key(std::string_view key);
// Empty, or valid as the name part of a label key.
bool is_label_value(std::string_view value);
// A resource such as nvidia.com/gpu.
bool is_gpu_resource(std::string_view name);
// The name of an environment variable: printable ASCII without '='.
bool is_env_name(std::string_view name);

}  // namespace tilewright::api
