// The all-reduce of a step's gradient, overlapped with backward. The compute thread starts each
// bucket when its gradients are final, a communication thread per stream of the mesh transfers it,
// and wait() or finish() returns when the sums of all ranks have arrived. In exact mode the result
// has the same bits for any number of ranks and any split of the shards among them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "worker/collectives/idle_watch.h"
#include "worker/collectives/step_exchange.h"

namespace tilewright::collectives {

// Of one step on one rank.
struct ExchangeTimes {
  Duration exchange{};  // a started bucket was in transfer, or was waited for
  Duration wait{};      // of it, while the computation was blocked in wait()
};

class Reducer {
 public:
  // `split`: the shards of every rank, usually even_split(mesh.world(), shards). In plain mode each
  // rank has one part. With one rank there is no thread and no socket.
  Reducer(Mesh& mesh, std::span<const Range> split, int shards, ReducerOptions options = {});
  // Stops the communication threads, even in the middle of a step.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // The subtrees of the parts that this rank passes to begin_step(), in this order. In plain mode
  // one part of any subtree.
  const std::vector<Subtree>& local_parts() const;

  // Begins a step. `buckets` are disjoint ranges of elements, equal on all ranks, in the order in
  // which they start. The buffers of `parts` belong to the Reducer until wait() returns or a call
  // throws; if the step is abandoned otherwise, they must outlive the Reducer.
  void begin_step(const GradientParts& parts, std::span<const Range> buckets);
  // Starts the next bucket: its elements are final in all parts. `bucket` is its index.
  void start(int bucket);
  // Call after the last start(). Returns when parts.sum holds the sum over all ranks.
  void wait(MonotonicTime deadline);
  // Starts the last bucket, unless it is started, and waits. While the communication thread of the
  // first stream is idle, the calling thread transfers in its place: switching to it and back takes
  // longer than an exchange of some 100 KiB.
  void finish(MonotonicTime deadline);
  // Of the last step, after wait() or finish(). Zero with one rank.
  const ExchangeTimes& times() const { return times_; }

  // These functions throw Failure(kPeerLost), which names the rank, if a peer is lost,
  // Mesh::abort() was called, no byte was transferred for idle_timeout, or a deadline has passed.
  // Destroy the mesh soon afterwards: that tells the other ranks.
  void throw_if_failed();

 private:
  // A stream with its thread. In a step the thread that has locked `driver` transfers: the
  // communication thread, which unlocks it while no started bucket is pending, or that in finish().
  struct Channel {
    Channel(Mesh& all, int stream, std::span<const Range> split, const ReducerOptions& options)
        : mesh(all.stream(stream)), exchange(all, stream, split, options) {}
    Mesh& mesh;
    net::WakeUp wake_up;  // ends the wait of either
    std::mutex driver;    // locked before mutex_; guards what follows
    StepExchange exchange;
    IdleWatch idle_watch{wake_up};  // of the communication thread
    bool in_step = false;           // from begin_step() until the exchange is complete
    int started = 0;                // buckets
    std::optional<MonotonicTime> idle_since;
    Duration idle{};  // between buckets, since the first one
    std::thread thread;
  };

  void communication_loop(Channel& channel);
  void start_bucket(int bucket);
  MonotonicTime begin_wait();
  void wait_since(MonotonicTime begin, MonotonicTime deadline);
  bool drive(Channel& channel, MonotonicTime deadline);
  bool transfer(Channel& channel, MonotonicTime deadline);
  static void watch_peers(Channel& channel);
  static void sleep_idle(Channel& channel, std::unique_lock<std::mutex>& driver);
  void finish_step(Channel& channel);
  void fail(Error error);
  void wake_threads();
  void stop_threads();
  int parts_expected() const { return layout_.slots_of(mesh_.rank()); }

  Mesh& mesh_;
  const Layout layout_;
  const ReducerOptions options_;

  // Of the current step; set by begin_step().
  GradientParts parts_;
  std::vector<Range> buckets_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool step_begun_ = false;  // between begin_step() and the end of wait()
  bool waits_ = false;       // the computation, in wait() or finish()
  int active_channels_ = 0;  // whose communication of the step is not complete
  ExchangeTimes times_;
  MonotonicTime exchange_begin_{};  // of the first start()
  MonotonicTime exchange_end_{};    // of the last channel
  Duration idle_{};                 // of the channel that was idle the shortest time
  int started_ = 0;
  bool stop_ = false;
  std::optional<Error> failure_;

  std::vector<std::unique_ptr<Channel>> channels_;  // by stream; none with one rank
};

}  // namespace tilewright::collectives
