// What goes over a connection between two ranks: a fixed header, then that many bytes.
#pragma once

#include <bit>
#include <cstdint>

namespace tilewright::collectives {

static_assert(std::endian::native == std::endian::little, "frames carry little-endian numbers");

enum class FrameKind : std::uint32_t {
  kPartials = 1,  // reduce-scatter: the sender's partial sums of the receiver's slice of a chunk
  kSums = 2,      // all-gather: the sums of the sender's slice of a chunk
  kBarrier = 3,
  kBroadcast = 4,
  kGather = 5,
  kGivenUp = 6,  // why the sender takes no further part in this epoch; text
};

struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x31465754;  // "TWF1"
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kBarrier;
  std::uint64_t epoch = 0;
  std::uint64_t operation = 0;  // counts the collective operations of an epoch, steps among them
  std::uint64_t chunk = 0;      // within a step
  std::uint64_t bytes = 0;      // that follow
  static constexpr std::size_t kMaxReason = 2048;  // bytes of a kGivenUp
};
static_assert(sizeof(FrameHeader) == 40);

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
    case FrameKind::kGivenUp:
      return "farewell";
  }
  return "unknown frame";
}

}  // namespace tilewright::collectives
