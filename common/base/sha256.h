// Incremental SHA-256 (FIPS 180-4, through OpenSSL).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tilewright {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* bytes, std::size_t size);
  // 64 lower-case hexadecimal digits. Do not use the object afterwards.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace tilewright
