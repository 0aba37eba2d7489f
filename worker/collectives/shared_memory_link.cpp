#include "worker/collectives/shared_memory_link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

namespace tilewright::collectives {
namespace {

constexpr std::size_t kRing = SharedMemoryLink::kRingBytes;
// A transfer becomes visible in pieces, so that the other end can begin.
constexpr std::size_t kPiece = kRing / 4;
}  // namespace

// Positions count bytes since the beginning; the offset in the ring is the remainder. Each end
// writes only its own End; only `awaited` is cleared by the other one.
struct SharedMemoryLink::Segment {
  struct End {
    alignas(64) std::atomic<std::uint64_t> written{0};   // to the ring that this end fills
    alignas(64) std::atomic<std::uint64_t> consumed{0};  // of the ring that the other end fills
    alignas(64) std::atomic<std::uint32_t> awaited{kNothing};
  };
  std::array<End, 2> ends;
  alignas(4096) std::array<std::array<std::byte, kRing>, 2> rings;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// With all pages allocated no access can fail later.
Result<std::unique_ptr<SharedMemoryLink>> SharedMemoryLink::create() {
  auto made = SharedSegment::create(sizeof(Segment), SharedSegment::Pages::kNow);
  if (!made.ok()) return made.error();
  auto* const segment = new (made->data()) Segment;
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink(std::move(made).value(), segment, true));
}

Result<std::unique_ptr<SharedMemoryLink>> SharedMemoryLink::open(std::string_view offer) {
  auto opened = SharedSegment::open(offer, sizeof(Segment));
  if (!opened.ok()) return opened.error();
  auto* const segment = reinterpret_cast<Segment*>(opened->data());
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink(std::move(opened).value(), segment, false));
}

// An impossible position counts as an empty or full ring here; read() and write() report it.
std::size_t SharedMemoryLink::readable() const {
  const std::uint64_t bytes = segment_->ends[1 - self_].written.load(std::memory_order_seq_cst) -
                              segment_->ends[self_].consumed.load(std::memory_order_relaxed);
  return static_cast<std::size_t>(bytes);
}

std::size_t SharedMemoryLink::writable() const {
  const std::uint64_t used = segment_->ends[self_].written.load(std::memory_order_relaxed) -
                             segment_->ends[1 - self_].consumed.load(std::memory_order_seq_cst);
  return used <= kRing ? static_cast<std::size_t>(kRing - used) : kRing + 1;
}

Result<std::size_t> SharedMemoryLink::write(std::span<const iovec> buffers) {
  auto& written = segment_->ends[self_].written;
  auto& ring = segment_->rings[self_];
  std::size_t total = 0;
  for (const iovec& buffer : buffers) {
    const auto* from = static_cast<const std::byte*>(buffer.iov_base);
    for (std::size_t left = buffer.iov_len; left > 0;) {
      const std::size_t space = writable();
      if (space > kRing)
        return Error{ExitCode::kPeerLost, "an invalid position in the ring buffer"};
      if (space == 0) return total;
      const std::uint64_t position = written.load(std::memory_order_relaxed);
      const std::size_t at = position % kRing;
      const std::size_t count = std::min({left, space, kRing - at, kPiece});
      std::memcpy(ring.data() + at, from, count);
      written.store(position + count, std::memory_order_seq_cst);
      from += count;
      left -= count;
      total += count;
    }
  }
  return total;
}

Result<std::size_t> SharedMemoryLink::read(std::span<std::byte> bytes) {
  auto& consumed = segment_->ends[self_].consumed;
  const auto& ring = segment_->rings[1 - self_];
  std::size_t total = 0;
  while (total < bytes.size()) {
    const std::size_t ready = readable();
    if (ready > kRing) return Error{ExitCode::kPeerLost, "an invalid position in the ring buffer"};
    if (ready == 0) break;
    const std::uint64_t position = consumed.load(std::memory_order_relaxed);
    const std::size_t at = position % kRing;
    const std::size_t count = std::min({bytes.size() - total, ready, kRing - at, kPiece});
    std::memcpy(bytes.data() + total, ring.data() + at, count);
    consumed.store(position + count, std::memory_order_seq_cst);
    total += count;
  }
  return total;
}

// Either this end sees what is awaited, or the other end, which announces it before it reads the
// positions, sees the new position: all of these accesses are sequentially consistent.
bool SharedMemoryLink::wakes_peer() {
  auto& awaited = segment_->ends[1 - self_].awaited;
  const std::uint32_t announced = awaited.load(std::memory_order_seq_cst);
  if (announced == kNothing) return false;
  std::uint32_t happened = kNothing;
  const std::uint64_t unread = segment_->ends[self_].written.load(std::memory_order_relaxed) -
                               segment_->ends[1 - self_].consumed.load(std::memory_order_seq_cst);
  if (unread > 0) happened |= kInput;
  if (readable() <= kRing / 2) happened |= kSpace;
  if ((announced & happened) == kNothing) return false;
  // The peer may have announced something else in the meantime. It must learn that this is gone,
  // too.
  return awaited.exchange(kNothing, std::memory_order_seq_cst) != kNothing;
}

bool SharedMemoryLink::sleep_until(std::uint32_t awaited) {
  segment_->ends[self_].awaited.store(awaited, std::memory_order_seq_cst);
  const bool happened = ((awaited & kInput) != 0 && readable() > 0) ||
                        ((awaited & kSpace) != 0 && writable() >= kRing / 2);
  if (happened) wake();
  return !happened;
}

void SharedMemoryLink::wake() {
  segment_->ends[self_].awaited.store(kNothing, std::memory_order_seq_cst);
}

}  // namespace tilewright::collectives
