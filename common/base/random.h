// Random identifiers and keys from the operating system's generator.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright {

std::uint64_t random_uint64();

// `bytes` random bytes as lower-case hexadecimal digits.
std::string random_hex(int bytes);

// A random UUID (RFC 4122, version 4): 3f2a9c04-5d1e-4b7a-9c3d-8e6f1a2b4c5d.
std::string random_uuid();

}  // namespace tilewright
