// The all-reduce of one step as a state machine over a non-blocking transport, driven by the
// communication thread of a Reducer. A bucket of the gradient is sent in chunks, each with one
// slice per rank:
//   1. Reduce-scatter: each rank sends its parts of slice r to rank r.
//   2. Rank r adds them in the order of the tree (shard_tree.h).
//   3. All-gather: rank r sends the sum to all ranks.
// Direct, not a ring: the bits of a ring depend on the number of ranks. With one part per rank both
// send 2 (W - 1) / W of the gradient per rank.
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
  // Floats per chunk. Buckets are sent in chunks so that summing starts before a whole bucket has
  // arrived and its data is in the cache.
  std::int64_t chunk_elements = std::int64_t{1} << 17;
  // Chunks that may be sent to a rank before it has summed the first of them. Each rank has receive
  // buffers for this many. With shared memory one is fastest: rings and buffers stay in the cache.
  int window = 4;
  int shared_memory_window = 1;
  // The step fails if no byte of a started bucket is transferred for this long.
  Duration idle_timeout = std::chrono::seconds(60);
  FaultPoints faults;
};

class StepExchange {
 public:
  StepExchange(Mesh& mesh, Layout layout, const ReducerOptions& options);

  // Begins a step; the previous one must be complete. Allocates memory only if the step has more
  // chunks than all before.
  void begin(const GradientParts& parts, std::span<const Range> buckets);
  // Starts buckets [0, count): their elements are final in the parts.
  void start(int count);
  // Sends, receives and sums as far as possible without blocking; true if it made progress. Throws
  // Failure(kPeerLost) that names the rank.
  bool advance();
  // True when all buckets are summed on this rank and all data for other ranks is sent.
  bool complete() const;
  // True while a started bucket is incomplete or data is unsent: only a peer can make progress.
  bool is_waiting_for_peers() const { return buckets_done_ < started_ || unsent(); }
  // Tells all peers why this rank leaves the membership epoch.
  void send_abort(std::string_view reason);
  // Appends the poll(2) entries to watch.
  void watch(std::vector<pollfd>& fds) const;
  // The ranks that this rank waits for: "rank 1 (10.0.0.2:29500), rank 3 (...)".
  std::string waiting_for() const;

 private:
  struct Chunk {
    Range elements;
    int bucket = 0;
    bool first = false;  // the first chunk of its bucket
  };
  // The state of the connection to one peer. Counters count chunks.
  struct Link {
    int peer = 0;
    int window = 0;
    // Sending. `left` is the unsent rest of the current frame; partials_sent and sums_sent count
    // complete frames.
    FrameHeader out;
    std::vector<iovec> iovecs;
    std::span<iovec> left;
    int partials_sent = 0, sums_sent = 0;
    // Receiving. in_iovec is the unread rest of the header or of the payload.
    FrameHeader in;
    std::span<const std::byte> payload;  // of `in`, if in_payload
    iovec in_iovec{};
    bool in_payload = false;
    int partials_received = 0, sums_received = 0;
    runtime::Buffer<float> partials;  // [window][slots_of(peer)][widest slice]
  };

  bool send(Link& link);
  bool load_next_frame(Link& link);
  bool receive(Link& link);
  bool awaits_own_send(const Link& link) const;
  void open_payload(Link& link);
  void close_payload(Link& link);
  bool sum();
  void sum_chunk(int chunk);
  void update_buckets_done();
  void update_buckets_sent();
  bool unsent() const;
  bool expects(const Link& link) const {
    return link.partials_received < chunks() || link.sums_received < chunks();
  }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  float* partials_at(const Link& link, int chunk) const;
  const Chunk& chunk(int index) const { return chunks_[static_cast<std::size_t>(index)]; }

  Mesh& mesh_;
  const Layout layout_;
  const ReducerOptions options_;
  const std::int64_t widest_slice_;
  std::vector<Link> links_;    // to every other rank
  std::vector<float*> slots_;  // inputs of one chunk's sum, by slot
  const GradientParts* parts_ = nullptr;
  std::uint64_t operation_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<int> chunks_before_;  // by bucket, then the number of chunks
  int buckets_ = 0;
  int started_ = 0;  // buckets
  int started_chunks_ = 0;
  int summed_ = 0;        // chunks of which this rank's slice is summed
  int buckets_sent_ = 0;  // buckets of which all partial sums are sent
  int buckets_done_ = 0;
};

}  // namespace tilewright::collectives
