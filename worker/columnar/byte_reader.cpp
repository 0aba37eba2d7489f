#include "worker/columnar/byte_reader.h"

#include <fmt/format.h>

namespace tilewright::columnar {

std::uint64_t ByteReader::varint(std::string_view what) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = read<std::uint8_t>(what);
    const std::uint64_t bits = byte & 0x7fu;
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if ((byte & 0x80u) == 0) return value;
  }
  location_->fail(fmt::format("{} is an integer of more than 64 bits", what));
}

void ByteReader::fail_short(std::uint64_t size, std::string_view what) const {
  location_->fail(fmt::format("found {} bytes, expected {} bytes for {}", left(), size, what));
}

}  // namespace tilewright::columnar
