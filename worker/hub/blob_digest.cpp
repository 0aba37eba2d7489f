#include "worker/hub/blob_digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/strings.h"

namespace tilewright::hub {

struct BlobDigest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

BlobDigest::BlobDigest(std::string etag, std::uint64_t size)
    : etag_(std::move(etag)), size_(size), state_(std::make_unique<State>()) {
  const bool hex = std::ranges::all_of(
      etag_, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (hex && etag_.size() == 64) algorithm_ = "SHA-256";
  if (hex && etag_.size() == 40) algorithm_ = "SHA-1";
  restart();
}

BlobDigest::~BlobDigest() = default;

void BlobDigest::restart() {
  if (!known()) return;
  const bool git = etag_.size() == 40;
  TW_CHECK(EVP_DigestInit_ex(state_->context, git ? EVP_sha1() : EVP_sha256(), nullptr) == 1,
           "OpenSSL has no {}", algorithm_);
  if (git) {
    const std::string header = fmt::format("blob {}", size_);
    update({header.c_str(), header.size() + 1});  // with the null byte
  }
}

void BlobDigest::update(std::string_view bytes) {
  if (!known()) return;
  TW_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "digest update");
}

std::string BlobDigest::hex() {
  if (!known()) return {};
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TW_CHECK(EVP_DigestFinal_ex(state_->context, digest, &size) == 1, "digest final");
  return to_hex({digest, size});
}

}  // namespace tilewright::hub
