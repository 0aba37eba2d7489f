// The wire format between two ranks: frames of a fixed header and a payload.
#pragma once

#include <sys/uio.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewright::collectives {

static_assert(std::endian::native == std::endian::little, "frames hold little-endian numbers");

enum class FrameKind : std::uint32_t {
  kPartials = 1,  // reduce-scatter: the sender's partial sums of the receiver's slice of a chunk
  kSums = 2,      // all-gather: the sums of the sender's slice of a chunk
  kBarrier = 3,
  kBroadcast = 4,
  kGather = 5,
  kAbort = 6,  // the sender leaves this membership epoch; the payload is the reason as text
  kPiece = 7,  // of a background copy; `chunk` is its index
  kPause = 8,  // no piece from `chunk` on follows until the next window
};

struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x32465754;  // "TWF2"
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kBarrier;
  std::uint64_t epoch = 0;      // membership epoch
  std::uint64_t operation = 0;  // index of the collective operation (steps included) in `epoch`
  std::uint64_t chunk = 0;      // index in the operation
  std::uint64_t bytes = 0;      // of the payload
  // CRC-32C. TCP's checksum has only 16 bits and does not cover errors in the memory of a router.
  // 0 with TLS, which detects altered bytes itself.
  std::uint32_t payload_crc = 0;
  std::uint32_t header_crc = 0;                    // CRC-32C of the fields above
  static constexpr std::size_t kMaxReason = 2048;  // bytes of a kAbort payload
};
static_assert(sizeof(FrameHeader) == 48);

// Completes a header whose other fields are final: the size of the payload and the checksums.
void seal(FrameHeader& header, std::span<const iovec> payload, bool tls = false);
bool header_is_intact(const FrameHeader& header);

inline const char* name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kPartials:
      return "partial sums";
    case FrameKind::kSums:
      return "sums";
    case FrameKind::kBarrier:
      return "barrier";
    case FrameKind::kBroadcast:
      return "broadcast";
    case FrameKind::kGather:
      return "gather";
    case FrameKind::kAbort:
      return "abort";
    case FrameKind::kPiece:
      return "piece";
    case FrameKind::kPause:
      return "pause";
  }
  return "unknown frame";
}

}  // namespace tilewright::collectives
