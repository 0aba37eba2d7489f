#include "common/base/sha256.h"

#include <openssl/evp.h>

#include "common/base/check.h"
#include "common/base/strings.h"

namespace tilewright {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  TW_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
           "OpenSSL has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(const void* bytes, std::size_t size) {
  TW_CHECK(EVP_DigestUpdate(state_->context, bytes, size) == 1, "SHA-256 update");
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TW_CHECK(EVP_DigestFinal_ex(state_->context, digest, &size) == 1, "SHA-256 final");
  return to_hex({digest, size});
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes.data(), bytes.size());
  return sha.hex();
}

}  // namespace tilewright
