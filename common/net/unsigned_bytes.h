// Text as OpenSSL's functions take it. Private to this module.
#pragma once

#include <span>
#include <string_view>

namespace tilewright::net {

inline std::span<const unsigned char> as_unsigned(std::string_view bytes) {
  return {reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()};
}

}  // namespace tilewright::net
