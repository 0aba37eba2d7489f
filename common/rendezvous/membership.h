// The membership of one job as a pure state machine: step() depends only on its arguments and uses
// no clock, thread, socket or log. Time is monotonic and passed in.
//
//             join                              all members of the epoch reconnected
//           ┌───────┐                         ┌─────────────┐──────────────────┐
//           │       ▼   a member holds an     │ REBUILDING  │                  │
//           │  ┌───────────┐  epoch ────────▶ │ (restarted  │                  │
//           └──│ GATHERING │ ◀─────────────── │ coordinator)│                  ▼
//    start ───▶│           │  loss, timeout   └─────────────┘             ┌─────────┐
//              │           │ ───────────────────────────────────────────▶ │ RUNNING │
//              └───────────┘  expected members, or min members: at once   └─────────┘
//                ▲       ▲    if all survivors wait, else after the join    │  │  │
//                │       │    quiet period: ++epoch, assignments            │  │  │ rank 0
//                │       │                                                  │  │  │ finished
//                │       └── loss, leave, rejoin: the epoch ends ───────────┘  │  ▼
//                │                                                             │ ┌─────────┐
//            all rejoined       ┌──────────┐  new member and world < max:      │ │ CLOSING │
//            (in order), loss,  │ DRAINING │  ask members to end the epoch     │ └─────────┘
//            timeout ────────── │          │ ◀ at a step boundary ─────────────┘   │ all finished
//                               └──────────┘                                       ▼ or gone
//                                     │ rank 0 finished: CLOSING               ┌────────┐
//                                     └──────────────────────────────────────▶ │ CLOSED │
//                                                                              └────────┘
// A member of a running epoch whose connection breaks is disconnected: the epoch continues, and
// nothing happens if the same instance reconnects. The member is lost, and the epoch ends,
//  - when reconnect_timeout has passed,
//  - when another member gives the epoch up because its collectives failed,
//  - when the owner reports that the worker has exited,
//  - when a newer instance of the process joins. A new process has been in no epoch, so one that
//    reports an epoch is the older of two, unless the other has been in an earlier epoch.
//
// Invariants (tests/unit/common/rendezvous/membership_property_test.cpp):
//  - at most one epoch is current; its number is above every number assigned or seen before;
//  - ranks are 0 ... world - 1 in the order of (worker index, local rank), one per process;
//  - when an epoch forms, min <= world <= max with the owner's latest bounds;
//  - a message whose epoch is not the member's epoch changes nothing;
//  - a member cannot raise the numbers by more than kMaxUnstoredEpochs in a coordinator's life;
//  - a connected member that leaves is removed at once and is in no epoch, whichever is current;
//  - a disconnected member that reconnects in time changes nothing but its own entry;
//  - only members of the current epoch are disconnected;
//  - a deadline that was not due before the coordinator stalled is not due after it;
//  - while at least min members are connected and all of them wait, an epoch forms by
//    next_deadline(), unless some lack the job's instruction set;
//  - every member of an epoch has its instruction set, and all epochs of an exact job have the
//    same.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {

// --- events ---

// A member is ready for the next epoch. With `held_assignment` it is still in that epoch and has
// reconnected.
struct Join {
  MemberId who;
  std::string address;
  std::vector<std::string> isas;  // instruction sets that the member can use, slowest first
  std::int64_t last_checkpoint_step = -1;
  Epoch after_epoch = 0;  // the epoch that the member gives up; 0: none
  std::optional<Assignment> held_assignment;
};
// Heartbeat and Finished contain the member's current epoch; 0: none.
struct Heartbeat {
  MemberId who;
  Epoch epoch = 0;
  Progress progress;
};
struct Finished {
  MemberId who;
  Epoch epoch = 0;
};
// On the member's current connection. It has no epoch: the member leaves the job, whether or not it
// has seen that its epoch has ended or that the next one has formed.
struct Leave {
  MemberId who;
  std::string reason;
};
struct ConnectionClosed {
  MemberId who;
  std::string reason;
};
// From the owner: the worker's processes, or the one with this local rank, have exited. A member
// that is still connected stays, because the report may be about an earlier process; but if its
// connection closes within reconnect_timeout, the member is lost at once.
struct WorkerExited {
  int worker_index = 0;
  std::optional<int> local_rank;
};
// From the owner: the minimum and maximum number of processes in later epochs (the current epoch is
// not affected), the number that the job should have now, and how long an epoch waits for that
// number before it forms with fewer, for example while a worker restarts.
struct Expect {
  int min_world = 1;
  int max_world = 1;
  int expected = 1;
  Duration timeout{};
};
// The coordinator did not run for this long (SIGSTOP, CPU throttling, a suspended machine): it saw
// no message, and members may have reconnected meanwhile. Moves all deadlines by `gap`.
struct Stalled {
  Duration gap{};
};
struct Tick {};
using Event = std::variant<Join, Heartbeat, Finished, Leave, ConnectionClosed, WorkerExited, Expect,
                           Stalled, Tick>;

// --- actions ---

// By rank. All members of an epoch share one list, so that the actions are linear in their number.
using SharedPeers = std::shared_ptr<const std::vector<Peer>>;

struct Assign {
  MemberId to;
  Assignment assignment;  // without its peers
  SharedPeers peers;
};
// The member's epoch has ended: it aborts its collectives and joins again, or exits if the job has
// finished.
struct EndEpoch {
  MemberId to;
  Epoch epoch = 0;
  std::string reason;
  bool job_finished = false;
};
// Asks the member to end the epoch at a step boundary and to join again.
struct RequestReform {
  MemberId to;
  Epoch epoch = 0;
  std::string reason;
};
// The member is not admitted or no longer admitted. The connection closes after this message.
struct Refuse {
  MemberId to;
  std::string message;
  bool job_finished = false;
  bool replaced = false;  // by a newer instance of its process
};
// Confirms the member's Finished.
struct Acknowledge {
  MemberId to;
};
// The member is considered dead: close its connection.
struct CloseConnection {
  MemberId to;
};
// Tells the owner that a member's connection broke and that it may reconnect.
struct MemberDisconnected {
  MemberId who;
  Epoch epoch = 0;
  std::string reason;
};
// Tells the owner that a member was lost. `epoch` is 0 if the member was in none.
struct MemberLost {
  MemberId who;
  Epoch epoch = 0;
  int rank = -1;  // in its last epoch; -1: it was in none
  LossKind kind = LossKind::kConnectionClosed;
  std::string reason;
};
using Action = std::variant<Assign, EndEpoch, RequestReform, Refuse, Acknowledge, CloseConnection,
                            MemberDisconnected, MemberLost>;
using Actions = std::vector<Action>;

// --- state ---

enum class MemberState {
  kNotRejoined,  // connected; its epoch has ended and it has not joined again
  kWaiting,      // ready for the next epoch
  kInEpoch,
  kFinished,
};

struct Disconnection {
  MonotonicTime since;
  std::string reason;
  bool operator==(const Disconnection&) const = default;
};

struct Member {
  MemberId who;
  std::string address;
  std::vector<std::string> isas;
  MemberState state = MemberState::kWaiting;
  MonotonicTime since;                           // when it entered its state
  MonotonicTime last_seen;                       // its last message that was not stale
  std::optional<Disconnection> disconnected;     // nullopt: it is connected
  std::optional<MonotonicTime> reported_exited;  // when the owner reported its exit
  int last_rank = -1;                            // in its last epoch; -1: it was in none
  Epoch latest_epoch = 0;                        // that it has been in; 0: its process is new
  Progress progress;
  bool operator==(const Member&) const = default;
};

// A member of the current epoch; its position in State::epoch_members is its rank.
struct EpochMember {
  Peer peer;
  bool present = false;   // false: not reconnected yet, while rebuilding
  bool finished = false;  // reported Finished; may have disconnected since
  bool rejoined = false;  // has joined again, while draining
  bool operator==(const EpochMember&) const = default;
};

struct State {
  Settings settings;
  MonotonicTime started;
  Phase phase = Phase::kGathering;
  MonotonicTime phase_started;
  Epoch latest_epoch = 0;                   // the highest epoch assigned or reported by a member
  Epoch max_reported_epoch = 0;             // from a member; a later one cannot have formed
  Epoch last_ended_epoch = 0;               // all epochs up to this one have ended
  bool formed_before = false;               // the job ran under an earlier coordinator
  std::vector<EpochMember> epoch_members;   // of the current epoch, by rank; empty: no epoch
  std::int64_t last_checkpoint_step = -1;   // of the job; also of members that are gone
  std::int64_t resume_step = -1;            // of the current epoch
  std::string isa;                          // of the latest epoch; empty: unknown
  std::map<WorkerProcess, Member> members;  // connected, or disconnected for a moment
  MonotonicTime last_join;
  MonotonicTime wait_for_expected_until;
  MonotonicTime first_rejoin;   // draining: when the first member joined again
  std::deque<MemberId> fenced;  // replaced instances, refused; at most kMaxFenced
  std::string end_reason;       // why the last epoch ended
  bool current() const { return !epoch_members.empty(); }
  Epoch epoch() const { return current() ? latest_epoch : 0; }
  bool operator==(const State&) const = default;
};

// What the owner of an earlier coordinator has stored.
struct Stored {
  // Epoch numbers up to this one are not assigned again. It may still be running; its members then
  // report it. If it is above 0, the first epoch waits up to recovery_timeout for such members.
  // Members may report epochs up to kMaxUnstoredEpochs above it.
  Epoch last_epoch = 0;
  std::int64_t last_checkpoint_step = -1;  // -1: none
  std::string isa = {};                    // of the job's epochs; empty: none has formed
};

// Settings must pass check().
State make_state(const Settings& settings, const Stored& stored, MonotonicTime now);

// Whether a waiting member can be in the next epoch. One that lacks the instruction set of an exact
// job waits until the job ends.
bool lacks_isa(const State& state, const Member& member);

Actions step(State& state, const Event& event, MonotonicTime now);

// When the phase times out; nullopt: never, or too few members are waiting.
std::optional<MonotonicTime> phase_deadline(const State& state);

// When the member is lost without a further event.
MonotonicTime member_deadline(const State& state, const Member& member);

// When step(Tick) is due; nullopt: not before another event.
std::optional<MonotonicTime> next_deadline(const State& state);

// The members of the current epoch.
SharedPeers peers_of(const State& state);
// The assignment of one rank of the current epoch, without its peers.
Assignment assignment_of(const State& state, int rank);

}  // namespace tilewright::rendezvous
