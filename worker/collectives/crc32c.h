// CRC-32C (Castagnoli; RFC 3720, section 12.1), the checksum of frames. It detects every error
// burst of up to 32 bits, and other errors with a probability of 1 - 2^-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewright::collectives {

// The checksum of `bytes`; with `crc`, of the bytes that have the checksum `crc` and then `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

// The same without the CPU's instruction.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace tilewright::collectives
