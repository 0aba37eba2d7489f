#include "common/base/random.h"

#include <fmt/format.h>

#include <random>

namespace tilewright {

std::uint64_t random_uint64() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::string random_hex(int bytes) {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", device() & 0xFFU);
  return hex;
}

std::string random_uuid() {
  std::string hex = random_hex(16);
  hex[12] = '4';                                               // version
  hex[16] = "89ab"[static_cast<unsigned char>(hex[16]) & 3U];  // variant
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

}  // namespace tilewright
