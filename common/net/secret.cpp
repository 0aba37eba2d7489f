#include "common/net/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/base/file_descriptor.h"
#include "common/net/unsigned_bytes.h"

namespace tilewright::net {
namespace {

Status check_size(std::size_t size, const std::string& where) {
  if (size >= SecretKey::kMinBytes && size <= SecretKey::kMaxBytes) return {};
  return Error{ExitCode::kUsage, fmt::format("{}: found a secret of {}{} bytes, expected {} to {}",
                                             where, size > SecretKey::kMaxBytes ? "more than " : "",
                                             std::min(size, SecretKey::kMaxBytes),
                                             SecretKey::kMinBytes, SecretKey::kMaxBytes)};
}

}  // namespace

Result<SecretKey> SecretKey::from_file(const std::filesystem::path& path) {
  const auto refuse = [&path](const char* action) {
    return Error{ExitCode::kUsage, fmt::format("{}: cannot {} the secret: {}", path.string(),
                                               action, std::strerror(errno))};
  };
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return refuse("open");
  // One byte more than allowed, to detect a longer file. Reads in place, so that no copy of the
  // secret stays in a stream's buffer.
  SecretKey key(std::vector<unsigned char>(kMaxBytes + 1));
  std::size_t size = 0;
  while (size < key.bytes_.size()) {
    const ssize_t got = read(fd.get(), key.bytes_.data() + size, key.bytes_.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse("read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (auto status = check_size(size, path.string()); !status.ok()) return status.error();
  key.bytes_.resize(size);  // shrinks in place; the bytes behind it were never written
  return key;
}

Result<SecretKey> SecretKey::from_bytes(std::string_view bytes) {
  if (auto status = check_size(bytes.size(), "secret"); !status.ok()) return status.error();
  const auto raw = as_unsigned(bytes);
  return SecretKey(std::vector<unsigned char>(raw.begin(), raw.end()));
}

SecretKey SecretKey::random() {
  SecretKey key{std::vector<unsigned char>(kRandomBytes)};
  TW_CHECK(RAND_bytes(key.bytes_.data(), static_cast<int>(key.bytes_.size())) == 1,
           "no random numbers from OpenSSL");
  return key;
}

SecretKey::~SecretKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

SecretKey& SecretKey::operator=(SecretKey&& other) noexcept {
  if (this != &other) {
    OPENSSL_cleanse(bytes_.data(), bytes_.size());
    bytes_ = std::move(other.bytes_);
  }
  return *this;
}

SecretKey SecretKey::clone() const { return SecretKey(bytes_); }

Mac hmac_sha256(const SecretKey& key, std::string_view bytes) {
  Mac mac{};
  unsigned int size = 0;
  const auto raw = as_unsigned(bytes);
  const unsigned char* outcome =
      HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()), raw.data(),
           raw.size(), mac.data(), &size);
  TW_CHECK(outcome != nullptr && size == mac.size(), "HMAC-SHA256 unavailable");
  return mac;
}

void hkdf_sha256(const SecretKey& secret, std::string_view salt, std::string_view info,
                 std::span<unsigned char> output) {
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  const auto size = [](const auto& bytes) { return static_cast<int>(bytes.size()); };
  const auto salted = as_unsigned(salt), labelled = as_unsigned(info);
  std::size_t made = output.size();
  const bool good =
      context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_salt(context.get(), salted.data(), size(salted)) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), secret.bytes().data(), size(secret.bytes())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), labelled.data(), size(labelled)) == 1 &&
      EVP_PKEY_derive(context.get(), output.data(), &made) == 1 && made == output.size();
  TW_CHECK(good, "HKDF-SHA256 unavailable for {} bytes", output.size());
}

bool equal_in_constant_time(std::span<const unsigned char> a, std::span<const unsigned char> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tilewright::net
