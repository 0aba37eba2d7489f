// A member's end of the rendezvous: joins, sends heartbeats in the background, learns that its
// epoch is over. While the coordinator is away the member trains on; the client connects again with
// back-off and tells the coordinator, or its successor, which epoch it is in.
//
//                  join()                    assignment
//   IDLE ────────────────────▶ JOINING ──────────────────▶ IN EPOCH ──── finish() ───▶ FINISHING
//                                 ▲                        │      │                      │
//                                 │ join(): gives it up    │      │ epoch ended          │ taken
//                                 down └────────────────────────┴─── ENDED ◀── epoch ended ───┤
//                                                                                        ▼
//   any state: refused ───▶ REFUSED (for good)                                       FINISHED
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
    Seat seat;
    std::string address;            // host:port where the other members reach this one
    std::string isa;                // what its kernels compute with
    bool tls = false;               // as the job asks for; the coordinator refuses the other
    std::uint64_t incarnation = 0;  // 0: drawn at random
    Duration heartbeat_interval = std::chrono::seconds(1);
    // Without any answer for so long the coordinator is taken for away, and connected to anew.
    Duration silence = std::chrono::seconds(10);
    // Between two tries to connect: doubling from the first to the second, each between half and
    // the whole of it at random.
    Duration first_backoff = std::chrono::milliseconds(20);
    Duration last_backoff = std::chrono::seconds(2);
  };

  Client(Options options, net::SecretKey key, std::shared_ptr<Logger> log);
  // Closes the connection. Without finish() before it, the coordinator counts a loss.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Waits for the next epoch; gives up the one it is in. Errors:
  //  kPeerLost     no epoch formed until the deadline; the sentence says what was missing. The wish
  //                stands: another call takes it up.
  //  kUnsupported  refused for good; the sentence is the coordinator's
  //  kOk           the job has finished already: there is nothing to do
  //  kInterrupted  the wait was cancelled; the wish stands
  Result<Assignment> join(std::int64_t last_checkpoint_step, const net::Wait& wait);

  // What the next heartbeats say. Cheap: a copy under a lock that is never held for long.
  void report(Progress progress);

  // Whether the epoch of the last assignment is over (or this process was refused): its collectives
  // are to be aborted, then comes join(). True before the first assignment, too.
  bool epoch_ended() const;
  // Rung while epoch_ended(): ends the waits of the collectives. Cleared by join().
  const net::WakeUp& epoch_bell() const;
  // Called once, from the client's thread, when the epoch is over; at once when it is over already.
  // When on_epoch_end() returns, the handler before it does not run any more. An empty one: nobody
  // is called. The handler may not call back into the client.
  using EpochEndHandler = std::function<void(const std::string& reason)>;
  void on_epoch_end(EpochEndHandler handler);
  // Whether the members are asked to end the epoch at a step boundary. They hear it at different
  // times: the members agree on the step among themselves.
  bool reform_asked() const;
  // Why the epoch ended or shall end; empty while it runs.
  std::string reason() const;
  bool connected() const;

  // The work is done; returns when the coordinator has taken it down. Errors (kPeerLost): the epoch
  // ended first (join() again), or the coordinator is away at the deadline.
  Status finish(const net::Wait& wait);
  // Goes away and says why, if the coordinator can be told in time.
  void leave(const std::string& reason, const net::Wait& wait);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::rendezvous
