#include "common/base/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace tilewright {

std::optional<std::string> decode_base64(std::string_view text) {
  std::string packed(text);
  std::erase_if(packed, [](char c) { return c == '\n' || c == '\r'; });
  if (packed.size() % 4 != 0) return std::nullopt;
  std::string bytes(packed.size() / 4 * 3 + 1, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(packed.data()),
                                   static_cast<int>(packed.size()));
  if (size < 0) return std::nullopt;
  // OpenSSL counts the padding characters as bytes.
  const auto padding = std::min<std::size_t>(
      2, static_cast<std::size_t>(std::count(packed.begin(), packed.end(), '=')));
  bytes.resize(static_cast<std::size_t>(size) -
               std::min<std::size_t>(padding, static_cast<std::size_t>(size)));
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL adds a NUL
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace tilewright
