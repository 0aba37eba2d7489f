// A stream of bytes in each direction between two processes of one host, through memory that both
// have mapped: a ring for each direction, with one writer and one reader. One end makes the memory
// and offers it in a text, the other end opens it. No other user can open it, and nothing is left in a
// file system.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright::collectives {

// Not thread-safe, and no function blocks: an end that must wait announces it with sleep_until(),
// and the other end then wakes it by other means if wakes_peer() returns true.
class SharedMemoryLink {
 public:
  // Bytes of a ring: small enough for the L2 cache, large enough that writer and reader overlap.
  static constexpr std::size_t kRingBytes = std::size_t{512} << 10;

  // What an end that sleeps waits for.
  enum Event : std::uint32_t { kNothing = 0, kInput = 1, kSpace = 2 };

  // Makes the memory. An Error (kUnsupported) says what the system refused.
  static Result<std::unique_ptr<SharedMemoryLink>> create();
  // For open() of a process of the same user that sees this one in /proc: the process, its
  // descriptor of the memory, and a random name that must match.
  std::string offer() const;
  // Opens the memory of an offer. An Error (kUnsupported): the offer is from another host or
  // container, or /proc does not give access to it. Opens nothing but such memory.
  static Result<std::unique_ptr<SharedMemoryLink>> open(std::string_view offer);
  // Closes the descriptor: no other process can open the memory any more.
  void close_offer() { memory_.reset(); }

  ~SharedMemoryLink();
  SharedMemoryLink(const SharedMemoryLink&) = delete;
  SharedMemoryLink& operator=(const SharedMemoryLink&) = delete;

  // Transfer as much as possible; 0 if nothing. An Error (kPeerLost): the other end has written
  // impossible positions.
  Result<std::size_t> write(std::span<const iovec> buffers);
  Result<std::size_t> read(std::span<std::byte> bytes);
  // The next bytes of the stream where the other end has written them, as far as they are contiguous.
  // This end may overwrite them until take() frees them.
  Result<std::span<std::byte>> peek();
  void take(std::size_t bytes);
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
  SharedMemoryLink(FileDescriptor memory, Segment* segment, std::string name, bool creator);

  FileDescriptor memory_;
  Segment* segment_ = nullptr;
  std::string name_;
  std::size_t self_ = 0;  // the index of this end in the segment
};

}  // namespace tilewright::collectives
