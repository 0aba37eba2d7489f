// The exchange of one step as a state machine over non-blocking sockets; the communication thread
// of a Reducer drives it. Protocol and order of sums: README.md of this room.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collectives/fault.h"
#include "worker/collectives/gradient_parts.h"
#include "worker/collectives/layout.h"
#include "worker/collectives/mesh.h"
#include "worker/runtime/memory.h"

namespace tilewright::collectives {

struct ReducerOptions {
  ReduceMode mode = ReduceMode::kExact;
  // Buckets travel in chunks of so many floats, so that sums begin before a bucket has come whole
  // and find their data in the cache.
  std::int64_t chunk_elements = std::int64_t{1} << 19;
  // Chunks that may be under way to a rank before it has summed the first of them; it holds buffers
  // for so many.
  int window = 4;
  // A started bucket that sees no byte move for so long ends the step.
  Duration idle_deadline = std::chrono::seconds(60);
  FaultPoints faults;
};

class StepExchange {
 public:
  StepExchange(Mesh& mesh, Layout layout, const ReducerOptions& options);

  // A new step; the one before was complete. Nothing is allocated once the number of chunks of a
  // step has stopped growing.
  void begin(const GradientParts& parts, std::span<const Range> buckets);
  // Buckets [0, count) are ready in the parts.
  void start(int count);
  // Sends, receives and sums what can be done without waiting; true when anything moved. Throws
  // Failure(kPeerLost) that names the rank.
  bool advance();
  int buckets_done() const { return buckets_done_; }
  // All buckets are summed here and all that others need is sent.
  bool complete() const;
  // Something that was started is not done: a peer has to move.
  bool waits_for_peers() const { return buckets_done_ < started_ || unsent(); }
  // Tells all peers why there will be nothing more from this rank.
  void give_up(std::string_view reason);
  // What poll(2) should watch; appended.
  void watch(std::vector<pollfd>& fds) const;
  // The ranks that have to move: "rank 1 (10.0.0.2:29500), rank 3 (...)".
  std::string waiting_for() const;

 private:
  struct Chunk {
    Range elements;
    int bucket = 0;
    bool first = false;  // of its bucket
  };
  // The two directions of the connection to one peer; counters are of chunks.
  struct Link {
    int peer = 0;
    // Sending. `left` is what remains of the frame in flight, partials_sent and sums_sent count
    // whole frames.
    FrameHeader out;
    std::vector<iovec> pieces;
    std::span<iovec> left;
    int partials_sent = 0, sums_sent = 0;
    // Receiving. in_pieces: the header, then the payload.
    FrameHeader in;
    iovec in_piece{};
    bool in_payload = false;
    int partials_got = 0, sums_got = 0;
    runtime::Buffer<float> partials;  // [window][slots_of(peer)][widest slice]
  };

  bool send(Link& link);
  bool load_next_frame(Link& link);
  bool receive(Link& link);
  void open_payload(Link& link);
  void close_payload(Link& link);
  bool sum();
  void sum_chunk(int chunk);
  void count_done();
  void count_sent();
  bool unsent() const;
  bool expects(const Link& link) const {
    return link.partials_got < chunks() || link.sums_got < chunks();
  }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  float* partials_at(const Link& link, int chunk) const;
  const Chunk& chunk(int index) const { return chunks_[static_cast<std::size_t>(index)]; }

  Mesh& mesh_;
  const Layout layout_;
  const ReducerOptions options_;
  const std::int64_t widest_slice_;
  std::vector<Link> links_;    // of every rank but this
  std::vector<float*> slots_;  // pointers for one chunk's sum, by slot
  const GradientParts* parts_ = nullptr;
  std::uint64_t operation_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<int> chunks_before_;  // of each bucket; one more at the end
  int buckets_ = 0;
  int started_ = 0;  // buckets
  int started_chunks_ = 0;
  int summed_ = 0;        // chunks whose slice of this rank is summed
  int buckets_sent_ = 0;  // whose partial sums have all gone
  int buckets_done_ = 0;
};

}  // namespace tilewright::collectives
