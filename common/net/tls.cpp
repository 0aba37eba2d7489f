#include "common/net/tls.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

namespace tilewright::net {
namespace {

constexpr std::string_view kSalt = "tilewright tls 1";
constexpr std::size_t kIdentityBytes = 32;

}  // namespace

TlsKey::TlsKey(const SecretKey& secret, std::string_view context) {
  identity_.resize(kIdentityBytes);
  hkdf_sha256(secret, kSalt, fmt::format("identity {}", context),
              {reinterpret_cast<unsigned char*>(identity_.data()), identity_.size()});
  hkdf_sha256(secret, kSalt, fmt::format("key {}", context), bytes_);
}

TlsKey::~TlsKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

}  // namespace tilewright::net
