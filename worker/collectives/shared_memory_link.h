// A stream of bytes in each direction between two processes of one host, through a shared segment:
// a ring for each direction, with one writer and one reader.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "worker/collectives/shared_segment.h"

namespace tilewright::collectives {

// Not thread-safe, and no function blocks: an end that must wait announces it with sleep_until(),
// and the other end then wakes it by other means if wakes_peer() returns true.
class SharedMemoryLink {
 public:
  // Bytes of a ring: small enough for the L2 cache, large enough that writer and reader overlap.
  static constexpr std::size_t kRingBytes = std::size_t{512} << 10;

  // What an end that sleeps waits for.
  enum Event : std::uint32_t { kNothing = 0, kInput = 1, kSpace = 2 };

  // One end makes the memory, the other one opens it; see SharedSegment.
  static Result<std::unique_ptr<SharedMemoryLink>> create();
  std::string offer() const { return memory_.offer(); }
  static Result<std::unique_ptr<SharedMemoryLink>> open(std::string_view offer);
  void close_offer() { memory_.close_offer(); }

  SharedMemoryLink(const SharedMemoryLink&) = delete;
  SharedMemoryLink& operator=(const SharedMemoryLink&) = delete;

  // Transfer as much as possible; 0 if nothing. An Error (kPeerLost): the other end has written
  // impossible positions.
  Result<std::size_t> write(std::span<const iovec> buffers);
  Result<std::size_t> read(std::span<std::byte> bytes);
  std::size_t readable() const;
  std::size_t writable() const;

  // Whether the other end sleeps and the last write() or read() gave it what it awaits. Then it
  // must be woken; a second call returns false. Returns true in vain if it has stopped waiting.
  bool wakes_peer();
  // Announces that this end is about to sleep. Returns false, and announces nothing, if one of the
  // events has happened already: kSpace if half of the ring is free.
  bool sleep_until(std::uint32_t awaited);
  void wake();  // this end is awake

 private:
  struct Segment;
  SharedMemoryLink(SharedSegment memory, Segment* segment, bool creator)
      : memory_(std::move(memory)), segment_(segment), self_(creator ? 0 : 1) {}

  SharedSegment memory_;
  Segment* segment_ = nullptr;  // in memory_
  std::size_t self_ = 0;        // the index of this end in the segment
};

}  // namespace tilewright::collectives
