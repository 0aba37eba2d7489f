// The membership of one job as a pure state machine: step() depends on its arguments alone and
// knows no clock, thread, socket or log. Time is monotonic and passed in.
//
//            joins                                all of the epoch re-registered
//          ┌───────┐                          ┌─────────────┐─────────────────┐
//          │       ▼      claim of an epoch   │ REBUILDING  │                 │
//          │  ┌───────────┐ ────────────────▶ │ (restarted  │                 │
//          └──│ GATHERING │ ◀──────────────── │ coordinator)│                 ▼
//   start ───▶│           │  loss, timeout    └─────────────┘            ┌─────────┐
//             │           │ ───────────────────────────────────────────▶ │ RUNNING │
//             └───────────┘  expected members, or min members and the    └─────────┘
//               ▲       ▲    last call is over: ++epoch, assignments       │  │  │ rank 0
//               │       │                                                  │  │  │ finished
//               │       └── loss, leave, rejoin: the epoch is broken ──────┘  │  ▼
//               │                                                             │ ┌─────────┐
//           all have rejoined  ┌──────────┐  newcomer and world < max:        │ │ CLOSING │
//           (in order), loss,  │ DRAINING │  members are asked to end at a    │ └─────────┘
//           timeout ────────── │          │ ◀ step boundary ──────────────────┘   │ all finished
//                              └──────────┘                                       ▼ or gone
//                                    │ rank 0 finished: CLOSING               ┌────────┐
//                                    └──────────────────────────────────────▶ │ CLOSED │
//                                                                             └────────┘
// What always holds (tests/unit/common/rendezvous/membership_property_test.cpp):
//  - at most one epoch is current; its number is above every number handed out or seen before;
//  - ranks are 0 ... world - 1 in the order of seats; a seat is in it once; when it forms, min <=
//    world <= max, as the owner said last;
//  - a message of another epoch than the member's own changes nothing;
//  - while at least min members are connected and all of them wait, an epoch forms by
//    next_deadline().
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {

// --- what happens ---

// A member is ready for the next epoch; or, with `holding`, is still in the epoch it holds and says
// so to a coordinator that it has newly connected to.
struct Join {
  MemberId who;
  std::string address;
  std::string isa;
  std::int64_t last_checkpoint_step = -1;
  Epoch after_epoch = 0;  // the epoch that the member gives up; 0: it was in none
  std::optional<Assignment> holding;
};
// Heartbeat, Finished and Leave carry the epoch that the member is in, 0 while it is in none.
struct Heartbeat {
  MemberId who;
  Epoch epoch = 0;
  Progress progress;
};
struct Finished {
  MemberId who;
  Epoch epoch = 0;
};
struct Leave {
  MemberId who;
  Epoch epoch = 0;
  std::string reason;
};
struct ConnectionClosed {
  MemberId who;
  std::string reason;
};
// From the owner: how many processes an epoch may have from now on (the running one goes on as it
// is), how many the job should have now, and for how long an epoch may wait for these (a worker is
// being restarted) rather than form with fewer.
struct Expect {
  int min_world = 1;
  int max_world = 1;
  int expected = 1;
  Duration patience{};
};
struct Tick {};
using Event = std::variant<Join, Heartbeat, Finished, Leave, ConnectionClosed, Expect, Tick>;

// --- what is to be done ---

struct Assign {
  MemberId to;
  Assignment assignment;
};
// The member's epoch is over: it aborts its collectives and joins again; after the job has
// finished, it ends.
struct EndEpoch {
  MemberId to;
  Epoch epoch = 0;
  std::string reason;
  bool job_finished = false;
};
// Please end the epoch at a step boundary, after a checkpoint, and join again.
struct AskReform {
  MemberId to;
  Epoch epoch = 0;
  std::string reason;
};
// Not admitted, or not any more; the connection is closed after it.
struct Refuse {
  MemberId to;
  std::string sentence;
  bool job_finished = false;
};
// The member's Finished has been taken down.
struct Acknowledge {
  MemberId to;
};
// The member is taken for dead: close its connection.
struct Drop {
  MemberId to;
};
// For the owner: a member was lost, in `epoch` or in none.
struct Lost {
  MemberId who;
  Epoch epoch = 0;
  int rank = -1;  // in the last epoch that it was in; -1: it was in none
  LossKind kind = LossKind::kConnectionClosed;
  std::string reason;
};
using Action = std::variant<Assign, EndEpoch, AskReform, Refuse, Acknowledge, Drop, Lost>;
using Actions = std::vector<Action>;

// --- what is known ---

enum class Standing {
  kOutstanding,  // connected; its epoch is over and it has not joined again
  kWaiting,      // ready for the next epoch
  kInEpoch,
  kFinished,
};

struct Member {
  MemberId who;
  std::string address;
  std::string isa;
  Standing standing = Standing::kWaiting;
  MonotonicTime since;      // of its standing
  MonotonicTime last_seen;  // any message that was not stale
  std::int64_t last_checkpoint_step = -1;
  int last_rank = -1;  // in the last epoch that it was in; -1: it was in none
  Progress progress;
  bool operator==(const Member&) const = default;
};

// A place in the current epoch; its position is its rank.
struct Place {
  Peer peer;
  bool present = false;   // false: rebuilding, not re-registered yet
  bool finished = false;  // it has reported Finished, whether still connected or not
  bool left = false;      // draining: it has joined again
  bool operator==(const Place&) const = default;
};

struct State {
  Settings settings;
  MonotonicTime started;
  Phase phase = Phase::kGathering;
  MonotonicTime phase_since;
  Epoch latest = 0;            // the highest epoch handed out or heard of
  Epoch over = 0;              // all epochs up to here have ended, as far as this coordinator knows
  bool formed_before = false;  // the owner knows that the job ran under an earlier coordinator
  std::vector<Place> roster;   // of the current epoch, by rank; empty: none is current
  std::int64_t resume_step = -1;   // of the current epoch
  std::map<Seat, Member> members;  // connected ones
  MonotonicTime last_join;
  MonotonicTime patience_until;
  MonotonicTime first_left;     // draining: when the first member joined again
  std::deque<MemberId> fenced;  // replaced incarnations, refused for ever; the oldest fall out
  std::string last_end;         // why the last epoch ended
  bool current() const { return !roster.empty(); }
  Epoch epoch() const { return current() ? latest : 0; }
  bool operator==(const State&) const = default;
};

// `floor`: no epoch up to it is handed out (an epoch of that number may still be running and is
// then taken up from its members); above 0, fresh members are given reunion_wait to be joined by
// those of a running epoch. Settings must pass check().
State make_state(const Settings& settings, Epoch floor, MonotonicTime now);

Actions step(State& state, const Event& event, MonotonicTime now);

// When the phase ends by itself; nullopt: never, or not while so few wait.
std::optional<MonotonicTime> phase_deadline(const State& state);

// When step(Tick) has something to do; nullopt: not before another event.
std::optional<MonotonicTime> next_deadline(const State& state);

// The assignment of one rank of the current epoch.
Assignment assignment_of(const State& state, int rank);

}  // namespace tilewright::rendezvous
