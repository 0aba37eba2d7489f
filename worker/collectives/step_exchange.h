// A stream's share of the all-reduce of one step as a state machine over a non-blocking transport,
// driven by a communication thread of a Reducer. A bucket of the gradient is sent in chunks, which go
// to the streams in turns. Each chunk has one slice per rank:
//   1. Reduce-scatter: each rank sends its parts of slice r to rank r.
//   2. Rank r adds them in the order of the tree (shard_tree.h): in the shared memory where its peers
//      have written them if each peer has one part, otherwise in buffers.
//   3. All-gather: rank r sends the sum to all ranks.
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
  // has receive buffers for this many. With shared memory and one rank per host one is fastest:
  // rings and buffers stay in the cache.
  int window = 4;
  int shared_memory_window = 1;
  // The step fails if no byte of a started bucket is transferred for this long.
  Duration idle_timeout = std::chrono::seconds(60);
  // A divisor of the number of ranks; see agree_on_hosts(). It and chunk_elements are equal on all
  // ranks.
  int ranks_per_host = 1;
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
  // The state of the connection to one peer. Counters count chunks.
  struct Link {
    int peer = 0;
    // A rank of this host; else the rank of another host with the same place.
    bool same_host = false;
    int window = 0;
    // Whether the sums of a chunk precede the partial sums of the next one. In place these would block
    // the sums until this rank starts that chunk, too.
    bool sums_first = false;
    int slots = 0;  // partial sums that the peer sends of an element
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
    runtime::Buffer<float> partials;  // [window][slots][widest_slice], unless summed in place
    std::span<std::byte> in_ring;     // what has arrived of those in place
  };

  bool send(Link& link);
  bool load_next_frame(Link& link);
  bool receive(Link& link);
  bool awaits_own_send(const Link& link) const;
  void open_payload(Link& link);
  void close_payload(Link& link);
  static void count_frame(Link& link);
  bool sum();
  // Adds the partial sums in place that all peers have sent.
  bool sum_in_place();
  // Whether the next bytes of the link are partial sums that stay there until they are added.
  bool is_in_place(const Link& link) const {
    return sums_in_place_ && link.in_payload && link.in.kind == FrameKind::kPartials;
  }
  bool peek(Link& link);
  // The parts of this host's ranks of the elements of piece(chunk, place_), in slots_.
  void find_host_slots(int chunk);
  // Append pointers to the partial sums of `count` elements that the peer has sent, and to the sums
  // over this host of a slice of piece(chunk, place_).
  void append_partials(const Link& link, int chunk, std::int64_t count,
                       std::vector<float*>& data) const;
  void append_host_sums(int chunk, Range slice, std::vector<float*>& data);
  void sum_over_host(int chunk);
  // `elements` are this rank's of slice_of_host(), or those that sum_in_place() adds next.
  void sum_over_hosts(int chunk, Range elements);
  void finish_sum();
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
  const bool sums_in_place_;  // partial sums, in the shared memory where peers have written them
  // The inputs of one chunk's sums, by slot; vectors of their own only to be allocated once.
  std::vector<float*> slots_, host_slots_, payload_;
  const GradientParts* parts_ = nullptr;
  std::uint64_t operation_ = 0;
  std::vector<Chunk> chunks_;       // of this stream
  std::vector<int> chunks_before_;  // by bucket, then the number of chunks
  int buckets_ = 0;
  int started_ = 0;  // buckets
  int started_chunks_ = 0;
  int host_summed_ = 0;               // chunks of which the parts of this host are summed
  int summed_ = 0;                    // chunks of which this rank's slice is summed
  std::int64_t summed_elements_ = 0;  // of the next one, in place
  int gathered_ = 0;                  // chunks of which this rank has all slices of its piece
  int buckets_sent_ = 0;              // buckets of which all partial sums are sent
  int buckets_done_ = 0;
};

}  // namespace tilewright::collectives
