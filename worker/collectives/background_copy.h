// Copies vectors from ranks that have the same content to ranks that have none, while the senders
// compute with them. The vectors may change between two windows, on receivers like on senders: what
// a window has copied then changes on all of them in the same way, and the rest is copied later. So
// that an element's new value may depend on those of the other vectors, a window has the same range
// of each.
//
//   BackgroundCopy copy(mesh, senders, receivers, vectors, timeout);
//   while (!all complete) {
//     copy.open_window();   // a thread of each sender sends pieces
//     ...                   // senders may read the vectors, receivers may not use them
//     copy.close_window();  // what was sent has arrived
//     ...                   // all ranks change the vectors in the same way
//   }
//
// In one window a sender sends kPiece frames in ascending order and then one kPause, which says
// where the next window begins. Receivers read until the kPause of every sender.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// Of each vector. Short enough that no step waits long for a range in transit: with three vectors,
// one receiver and 1 Gbit/s 13 ms.
inline constexpr std::size_t kCopyPieceBytes = std::size_t{1} << 19;

class BackgroundCopy {
 public:
  // Ranks, order and sizes are equal on all ranks, and each rank is a sender, a receiver or
  // neither. All vectors have the same size. Senders take the pieces in turns. Until the object is
  // destroyed, nothing else uses the links of `mesh` while a window is open. An operation fails if
  // nothing is transferred for `timeout`. Throws Failure(kMemory) if the system refuses a thread.
  // Collective.
  BackgroundCopy(Mesh& mesh, std::vector<int> senders, std::vector<int> receivers,
                 std::vector<std::span<std::byte>> vectors, Duration timeout,
                 std::size_t piece_bytes = kCopyPieceBytes);
  // Ends the thread of a sender, also in the middle of a window: then the mesh is aborted.
  ~BackgroundCopy();
  BackgroundCopy(const BackgroundCopy&) = delete;
  BackgroundCopy& operator=(const BackgroundCopy&) = delete;

  // The window ends when `share` of all bytes have been sent since the beginning, or with
  // close_window(). Without effect on receivers.
  void open_window(double share = 1);
  // On a sender: returns when the share is sent, at the latest at `limit`, if there is one. On
  // other ranks at once.
  void wait_until_sent(std::optional<MonotonicTime> limit = std::nullopt);
  // Senders finish the range in transit; receivers wait for all that was sent, for which `timeout`
  // may be another one. Throws Failure(kPeerLost) that names a rank; then the content of the
  // receivers is undefined. Collective.
  void close_window() { close_window(timeout_); }
  void close_window(Duration timeout);

  // Whether this rank has sent, or received, all of its pieces.
  bool complete() const;
  std::int64_t bytes() const { return bytes_; }  // of all vectors

 private:
  // What a receiver has got from a sender.
  struct Source {
    int rank = 0;
    std::size_t next = 0;  // the piece that follows, in pieces_
    FrameHeader header;
    std::size_t received = 0;  // bytes of header and payload
    bool paused = false;
  };

  // The piece that the sender of `piece` sends after it.
  std::size_t after(std::size_t piece) const;
  void send_pieces();
  void send_frames(FrameKind kind, std::span<const std::byte> bytes, std::size_t piece);
  bool is_sending() const { return open_ && next_ < std::min(end_, pieces_.size()); }
  void receive_window(Duration timeout);
  bool advance(Source& source);
  // Whether the frame of the source is complete, and counts it.
  bool open_frame(Source& source, std::span<std::byte>& payload);
  void wait_for_data(MonotonicTime deadline);

  Mesh& mesh_;
  const std::vector<int> senders_, receivers_;
  const Duration timeout_;
  const std::uint64_t operation_;
  const std::size_t vectors_;                 // their number
  std::vector<std::span<std::byte>> pieces_;  // the first of each vector, the second of each, ...
  std::int64_t bytes_ = 0;
  std::vector<Source> sources_;  // of a receiver

  // Of a sender.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  bool in_transit_ = false;  // a range
  bool stop_ = false;
  std::size_t next_ = 0;  // its next piece
  std::size_t end_ = 0;   // of the window
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace tilewright::collectives
