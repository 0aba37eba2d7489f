#include "worker/collectives/frame.h"

#include <cstddef>

#include "worker/collectives/crc32c.h"

namespace tilewright::collectives {
namespace {

std::uint32_t crc_of_fields(const FrameHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, header_crc)));
}

}  // namespace

void seal(FrameHeader& header, std::span<const iovec> payload, bool tls) {
  header.bytes = 0;
  header.payload_crc = 0;
  for (const iovec& part : payload) {
    header.bytes += part.iov_len;
    if (tls) continue;
    header.payload_crc = crc32c(
        std::span(static_cast<const std::byte*>(part.iov_base), part.iov_len), header.payload_crc);
  }
  header.header_crc = crc_of_fields(header);
}

bool header_is_intact(const FrameHeader& header) {
  return header.header_crc == crc_of_fields(header);
}

}  // namespace tilewright::collectives
