// Base64 (RFC 4648, section 4), used by kubeconfigs and Secrets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

// std::nullopt if `text` is not base64. Line breaks are ignored.
std::optional<std::string> decode_base64(std::string_view text);

std::string encode_base64(std::string_view bytes);

}  // namespace tilewright
