// Base64 (RFC 4648, section 4), as kubeconfigs and Secrets hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tilewright::kube {

std::string encode_base64(std::string_view bytes);
// Nothing if it is no base64; line ends within it are passed over.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace tilewright::kube
