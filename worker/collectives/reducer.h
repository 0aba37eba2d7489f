// The all-reduce of a step's gradient, overlapped with the backward pass: the compute thread starts
// buckets as their gradients become final, a communication thread exchanges them, wait() ends when
// every rank's sums are here. In exact mode the result has the same bits for every number of ranks
// and every split of the shards among them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "worker/collectives/step_exchange.h"

namespace tilewright::collectives {

class Reducer {
 public:
  // `split`: the shards of every rank (even_split(mesh.world(), shards)). In plain mode each rank
  // has one part, whatever its shards. A world of one has no thread and uses no socket.
  Reducer(Mesh& mesh, std::span<const Range> split, int shards, ReducerOptions options = {});
  // Ends the communication thread, in the middle of a step if need be.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // The aligned subtrees this rank must bring, in this order; in plain mode one of any kind.
  const std::vector<Subtree>& own_parts() const;

  // A new step. The buckets, disjoint ranges of elements, are the same on every rank and in the
  // order in which they will start. The buffers of the parts are the exchange's until wait()
  // returns or any call throws; they outlive the Reducer where a step is left otherwise.
  void begin_step(const GradientParts& parts, std::span<const Range> buckets);
  // The elements of the next bucket, number `bucket` of the list, are final in all parts.
  void start(int bucket);
  // After the last start(): returns when parts.sum holds the sums of all ranks.
  void wait(MonotonicTime deadline);

  // begin_step, start and wait throw Failure(kPeerLost), which names the rank, once a peer is lost,
  // Mesh::abort() was called, no byte moved for the idle deadline or wait() met its own. The mesh
  // is then good for nothing but destruction, which tells the other ranks; make it soon.
  void throw_if_failed() const;

 private:
  void communicate();
  void run_step();
  bool await_step();
  void fail(Error error);
  void end_thread();
  int parts_expected() const { return layout_.slots_of(mesh_.rank()); }

  Mesh& mesh_;
  const Layout layout_;
  const ReducerOptions options_;

  // Of the current step; set by begin_step().
  GradientParts parts_;
  std::vector<Range> buckets_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;     // between begin_step() and the end of wait()
  bool stepping_ = false;  // the exchange of a step was begun and is not complete
  int started_ = 0;
  bool stop_ = false;
  std::optional<Error> failure_;

  net::WakeUp kick_;  // ends the communication thread's poll
  std::optional<StepExchange> exchange_;
  std::thread thread_;
};

}  // namespace tilewright::collectives
