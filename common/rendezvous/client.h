// A member's connection to the rendezvous: joins epochs, sends heartbeats in the background and
// receives the end of its epoch. While the coordinator is unavailable, the member keeps training;
// the client reconnects with exponential backoff and reports the epoch that it holds to the
// coordinator or its successor.
//
//             join()              assignment              finish()
//   IDLE ─────────────▶ JOINING ─────────────▶ IN EPOCH ────────────▶ FINISHING
//                        ▲   ▲                  │    │                 │     │
//                        │   └── join() gives ──┘    │ epoch           │     │ acknowledged
//                        │       the epoch up        │ ended           │     ▼
//                        │                           ▼                 │  FINISHED
//                        └──────── join() ──────── ENDED ◀─────────────┘
//                                                        epoch ended
//   any state ── refused ──▶ REFUSED (final)
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/wait.h"
#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {

class Client {
 public:
  struct Options {
    net::Address coordinator;
    std::string job_uid;
    WorkerProcess process;
    std::string address;            // host:port where the other members reach this one
    std::vector<std::string> isas;  // instruction sets that it can use, slowest first
    bool tls = false;               // must match the job; the coordinator refuses a mismatch
    std::uint64_t instance_id = 0;  // 0: a random one
    Duration heartbeat_interval = std::chrono::seconds(1);
    // Without an answer to a heartbeat for this long the client closes the connection and
    // reconnects. A third of the job's heartbeat_timeout, if that is shorter: a connection may die
    // without a word, and the coordinator must hear of this process on another one before it counts
    // it as lost. Heartbeats are then at most a third of that apart.
    Duration coordinator_timeout = std::chrono::seconds(10);
    // Pause between attempts to connect. It doubles from min to max; each pause is multiplied by a
    // random factor from 0.5 to 1.
    Duration min_backoff = std::chrono::milliseconds(20);
    Duration max_backoff = std::chrono::seconds(2);
    Clock* clock = &system_clock();  // for heartbeats and coordinator_timeout
  };

  Client(Options options, net::SecretKey key, std::shared_ptr<Logger> log);
  // Closes the connection. The coordinator counts a loss unless finish() succeeded before.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Gives up the current epoch, if any, and waits for the next one. After kPeerLost and
  // kInterrupted the member stays joined: the next call continues to wait. Errors:
  //  kPeerLost     no epoch formed by the deadline; the message says what was missing
  //  kUnsupported  the coordinator refused this process permanently; the message is its reason
  //  kReplaced     a newer instance of this process has joined
  //  kOk           the job has already finished: there is nothing to do
  //  kInterrupted  the wait was cancelled
  Result<Assignment> join(std::int64_t last_checkpoint_step, const net::Wait& wait);

  // The job has had this epoch, of which the coordinator may not know: join() waits for a later
  // one.
  void raise_epoch(Epoch epoch);

  // Changes Options::isas for the next join().
  void set_isas(std::vector<std::string> isas);

  // Sets the progress that heartbeats carry. Cheap: a copy under a briefly held mutex.
  void report(Progress progress);

  // Whether the epoch of the last assignment has ended or this process was refused: abort the
  // collectives and call join(). Also true before the first assignment.
  bool epoch_ended() const;
  // Signalled while epoch_ended(): cancels the waits of the collectives. join() clears it.
  const net::WakeUp& epoch_cancel_token() const;
  // Calls the handler once, from the client's thread, when the epoch ends, or at once if it has
  // ended already. Replaces the previous handler, which no longer runs once on_epoch_end() returns.
  // An empty handler removes it. The handler must not call the client.
  using EpochEndHandler = std::function<void(const std::string& reason)>;
  void on_epoch_end(EpochEndHandler handler);
  // Whether the coordinator has asked the members to end the epoch at a step boundary. Members
  // receive the request at different times and must agree on the step among themselves.
  bool reform_requested() const;
  // Why the epoch ended, or why the coordinator asked to end it; empty otherwise.
  std::string reason() const;
  bool connected() const;
  // Whether this process waits while the others are in a membership epoch: as a spare, until they
  // reach a step boundary, or because it lacks their instruction set.
  bool others_train() const;

  // Reports that the work is done and waits for the coordinator's acknowledgement. Errors
  // (kPeerLost): the epoch ended first (join() again), or the coordinator did not answer by the
  // deadline.
  Status finish(const net::Wait& wait);
  // Leaves the job. Sends the reason to the coordinator if it is reachable by the deadline.
  void leave(const std::string& reason, const net::Wait& wait);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::rendezvous
