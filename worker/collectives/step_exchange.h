// A stream's share of the all-reduce of one step as a state machine over a non-blocking transport,
// driven by a communication thread of a Reducer. A bucket of the gradient is sent in chunks, which
// go to the streams in turns. Each chunk has one slice per rank:
//   1. Reduce-scatter: each rank sends its parts of slice r to rank r.
//   2. Rank r adds them in the order of the tree (shard_tree.h).
//   3. All-gather: rank r sends the sum to all ranks.
// If a peer's gradients are in memory that both have mapped (gradient_memory.h), the first frame
// only says where the parts are, rank r adds them there, and writes the sum to the peer's memory
// before the second frame. Otherwise the frames contain the elements.
// Direct, not a ring: the bits of a ring depend on the number of ranks. With one part per rank both
// send 2 (W - 1) / W of the gradient per rank.
//
// With several ranks per host this is done between hosts, among the ranks with the same place on
// their host. Each of them has a slice of the chunk, for which it collects the parts of its host
// before step 1 and sends the sum to the ranks of its host after step 3. So a host with R ranks
// sends and receives R times fewer bytes.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collectives/fault.h"
#include "worker/collectives/gradient_memory.h"
#include "worker/collectives/gradient_parts.h"
#include "worker/collectives/layout.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/sum.h"
#include "worker/runtime/memory.h"

namespace tilewright::collectives {

struct ReducerOptions {
  ReduceMode mode = ReduceMode::kExact;
  // Floats per chunk. Buckets are sent in chunks so that summing starts before a whole bucket has
  // arrived and its data is in the cache.
  std::int64_t chunk_elements = std::int64_t{1} << 17;
  // Chunks that may be sent to a rank before its sums of the first of them have arrived. Each rank
  // has receive buffers for this many.
  int window = 4;
  // The step fails if no byte of a started bucket is transferred for this long.
  Duration idle_timeout = std::chrono::seconds(60);
  // A divisor of the number of ranks; see agree_on_hosts(). It and chunk_elements are equal on all
  // ranks.
  int ranks_per_host = 1;
  // If not null, the parts and the sum are in this memory, which is of this mesh and outlives the
  // exchange. Links to ranks with which it is not shared copy.
  const GradientMemory* memory = nullptr;
  FaultPoints faults;
};

class StepExchange {
 public:
  // `split`: the shards of each rank, which cover all shards. `mesh` is that of all streams.
  StepExchange(Mesh& mesh, int stream, std::span<const Range> split, const ReducerOptions& options);

  // Begins a step; the previous one must be complete. Allocates memory only if the step has more
  // chunks than all before, or is the first with bf16 numbers.
  void begin(const GradientParts& parts, std::span<const Range> buckets);
  // Starts buckets [0, count): their elements are final in the parts.
  void start(int count);
  // Sends, receives and sums as far as possible without blocking; true if it made progress. Throws
  // Failure(kPeerLost) that names the rank.
  bool advance();
  // True when all its chunks are summed on this rank and all data for other ranks is sent.
  bool complete() const;
  // True while a started bucket is incomplete or data is unsent: only a peer can make progress.
  bool is_waiting_for_peers() const { return buckets_done_ < started_ || unsent(); }
  // Tells all peers why this rank leaves the membership epoch.
  void send_abort(std::string_view reason);
  // Appends the poll(2) entries to watch.
  void watch(std::vector<pollfd>& fds) const;
  // Whether a peer's data does not come through shared memory.
  bool uses_sockets() const;
  // Appends those of an idle thread; see Transport::watch_idle().
  void watch_idle(std::vector<pollfd>& fds) const;
  // The ranks that this rank waits for: "rank 1 (10.0.0.2:29500), rank 3 (...)".
  std::string waiting_for() const;

 private:
  struct Chunk {
    Range elements;
    int bucket = 0;
    bool first = false;  // the first of this stream in its bucket
    Precision precision = Precision::kFp32;
  };
  // Where the elements of a slice are in the sender's gradient memory: the slice's first element
  // and size, then where the sum and each part of the whole gradient begin.
  using Placement = std::vector<std::uint64_t>;
  static constexpr std::size_t kPlacedSum = 2;
  // The state of the connection to one peer. Counters count chunks.
  struct Link {
    int peer = 0;
    // A rank of this host; else the rank of another host with the same place.
    bool same_host = false;
    int window = 0;
    // The peer's gradient memory, if it is mapped. Then the payload of partial sums is a Placement.
    std::span<float> memory;
    Placement placed;      // what the peer has sent, checked
    Placement arriving;    // what it is sending
    Placement own_placed;  // what this rank sends
    int slots = 0;         // partial sums that the peer sends of an element
    std::int64_t widest_slice = 0;
    // Frames with bf16 elements, where sums are rounded to bf16. Copying floats through shared
    // memory is faster than their conversion.
    bool packs = false;
    runtime::Buffer<runtime::bf16> packed_out;  // the payload of `out`
    runtime::Buffer<runtime::bf16> packed_in;   // of `in`
    float* unpacked = nullptr;                  // where its elements belong
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
    runtime::Buffer<float> partials;  // [window][slots][widest_slice], unless memory is mapped
  };

  bool send(Link& link);
  bool load_next_frame(Link& link);
  bool receive(Link& link);
  bool awaits_own_send(const Link& link) const;
  void open_payload(Link& link);
  void close_payload(Link& link);
  // At most one chunk, so that its sums are sent while they are in the cache.
  bool sum();
  // The parts of this host's ranks of the elements of piece(chunk, place_), in slots_.
  void find_host_slots(int chunk);
  // Append pointers to the partial sums of the elements that the peer has sent, and to the sums
  // over this host of a slice of piece(chunk, place_).
  void append_partials(const Link& link, int chunk, Range elements,
                       std::vector<float*>& data) const;
  static float* sum_of_peer(const Link& link, Range elements) {
    return link.memory.data() + link.placed[kPlacedSum] + elements.begin;
  }
  void append_host_sums(int chunk, Range slice, std::vector<float*>& data);
  void sum_over_host(int chunk);
  void sum_over_hosts(int chunk);
  void update_buckets_done();
  void update_buckets_sent();
  bool unsent() const;
  bool expects(const Link& link) const {
    return link.partials_received < chunks() || link.sums_received < chunks();
  }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  bool is_packed(const Link& link, int index) const {
    return link.packs && chunk(index).precision == Precision::kBf16;
  }
  // Elements of a frame between this rank and the peer, at most.
  std::size_t most_elements(const Link& link) const;
  void find_places();
  // Takes what has arrived as `placed`; throws Failure(kPeerLost) if it is not in the peer's
  // memory.
  void take_placement(Link& link, Range slice) const;
  void append_payload(Link& link, std::span<float* const> data, std::int64_t count, bool packed);
  // The elements of a chunk that the ranks with a place sum together.
  Range piece(int chunk, int place) const;
  // Those that a rank sums for the peer of the link, which may be the peer itself.
  Range slice_of_rank(const Link& link, int chunk, int rank) const;
  // Those that a rank sums over the hosts.
  Range slice_of_host(int chunk, int rank) const;
  // Chunks of which partial sums or sums can be sent to the peer.
  int partials_ready(const Link& link) const {
    return link.same_host ? started_chunks_ : host_summed_;
  }
  int sums_ready(const Link& link) const { return link.same_host ? gathered_ : summed_; }
  // Chunks of which the partial sums of the peer are no longer needed. What is sent to other hosts
  // may point into those of a peer of this host.
  int partials_used(const Link& link) const { return link.same_host ? gathered_ : summed_; }
  float* partials_at(const Link& link, int chunk) const;
  const Chunk& chunk(int index) const { return chunks_[static_cast<std::size_t>(index)]; }

  Mesh& mesh_;  // the stream
  const int stream_, streams_;
  const ReducerOptions options_;
  const HostGrid grid_;
  const int host_, place_;    // of this rank
  const Layout rank_layout_;  // over the ranks of this host
  const Layout host_layout_;  // over the hosts
  std::vector<Link> links_;   // first to ranks of this host, in ascending order
  // The inputs of one chunk's sums, by slot, and their outputs; vectors of their own only to be
  // allocated once.
  std::vector<float*> slots_, host_slots_, sums_, payload_;
  const GradientParts* parts_ = nullptr;
  std::vector<std::uint64_t> places_;  // of the sum and the parts in options_.memory
  std::uint64_t operation_ = 0;
  std::vector<Chunk> chunks_;       // of this stream
  std::vector<int> chunks_before_;  // by bucket, then the number of chunks
  int buckets_ = 0;
  int started_ = 0;  // buckets
  int started_chunks_ = 0;
  int host_summed_ = 0;   // chunks of which the parts of this host are summed
  int summed_ = 0;        // chunks of which this rank's slice is summed
  int gathered_ = 0;      // chunks of which this rank has all slices of its piece
  int buckets_sent_ = 0;  // buckets of which all partial sums are sent
  int buckets_done_ = 0;
};

}  // namespace tilewright::collectives
