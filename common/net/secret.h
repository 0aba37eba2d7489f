// The secret of a job, and HMAC-SHA256 and HKDF-SHA256 with it (through OpenSSL).
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::net {

// Never printed; its memory is erased on destruction.
class SecretKey {
 public:
  static constexpr std::size_t kMinBytes = 16;
  static constexpr std::size_t kMaxBytes = 4096;
  static constexpr std::size_t kRandomBytes = 32;

  // Reads all bytes of the file, including a trailing newline. Errors (kUsage) name the path, never
  // the content.
  static Result<SecretKey> from_file(const std::filesystem::path& path);
  static Result<SecretKey> from_bytes(std::string_view bytes);
  static SecretKey random();  // kRandomBytes random bytes

  ~SecretKey();
  SecretKey(SecretKey&&) noexcept = default;
  SecretKey& operator=(SecretKey&& other) noexcept;
  SecretKey(const SecretKey&) = delete;
  SecretKey& operator=(const SecretKey&) = delete;
  SecretKey clone() const;
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  explicit SecretKey(std::vector<unsigned char> bytes) : bytes_(std::move(bytes)) {}
  std::vector<unsigned char> bytes_;
};

using Mac = std::array<unsigned char, 32>;
Mac hmac_sha256(const SecretKey& key, std::string_view bytes);
// RFC 5869: fills `output` (at most 255 x 32 bytes) with bytes derived from the secret.
void hkdf_sha256(const SecretKey& secret, std::string_view salt, std::string_view info,
                 std::span<unsigned char> output);
bool equal_in_constant_time(std::span<const unsigned char> a, std::span<const unsigned char> b);

}  // namespace tilewright::net
