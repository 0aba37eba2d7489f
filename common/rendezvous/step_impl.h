// One call of step(): the class behind it, whose definitions stand in step.cpp (what happens),
// step_joins.cpp (who comes) and step_epochs.cpp (how epochs begin and end); for this room only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {

inline constexpr const char* kJobHasFinished = "the job has finished";
inline constexpr const char* kNewcomer = "a worker has joined";

inline double in_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

class Step {
 public:
  Step(State& state, MonotonicTime now) : s_(state), now_(now) {}
  Actions take() { return std::move(actions_); }

  void operator()(const Join& join);
  void operator()(const Heartbeat& beat);
  void operator()(const Finished& finished);
  void operator()(const Leave& leave);
  void operator()(const ConnectionClosed& closed);
  void operator()(const Expect& expect);
  void operator()(const Tick&);

 private:
  // In place: GCC 12 warns of moves out of a variant that never happen.
  template <typename What>
  void act(What action) {
    actions_.emplace_back(std::in_place_type<What>, std::move(action));
  }

  Member* find_member(const MemberId& who);
  Place* find_place(const MemberId& who);
  int rank_of(const Place& place) const { return static_cast<int>(&place - s_.roster.data()); }
  // The epoch that a member is in; 0: none.
  Epoch own_epoch(const Member& member);
  // A message of another epoch than the member's changes nothing; its sender is told, unless it
  // will learn of its assignment by the next message anyway.
  bool refuse_stale(const Member& member, Epoch epoch);
  void end_epoch(const MemberId& who, Epoch epoch);
  void refuse(const MemberId& who, std::string sentence, bool finished = false);
  void stand(Member& member, Standing standing);

  // Who comes (step_joins.cpp).
  // Takes the sender in as a member, or renews it. Joining counts as being seen.
  Member& enter(const Join& join, Standing standing);
  // Whether a Join may be looked at, after older incarnations of its seat have been turned out.
  bool admit(const Join& join);
  bool refuse_other_isa(const Join& join);
  // Whether a claim makes another epoch the current one.
  bool takes_over(const Join& join) const;
  void replace_older(const MemberId& who);
  void fence(const MemberId& who);
  // A member gave up an epoch later than any known here: numbers go on above it.
  void hear_of(Epoch epoch, const MemberId& who);
  // A member of the current epoch has not seen its assignment yet.
  void assign_again(const Join& join, Place& place);
  // A member of the current epoch asks for the next one.
  void rejoin(const Join& join, Place& place);
  // A member says that it is in an epoch: after a restart of the coordinator, or when it has lost
  // its connection to this one.
  void claim(const Join& join);
  bool same_roster(const std::vector<Peer>& peers) const;
  // The epoch that the sender claims is over: it is connected, and expected to join again.
  void turn_out(const Join& join);
  // Makes the epoch that a member holds the current one, as far as it can still be whole.
  void take_up(const Join& join);

  // How epochs begin and end (step_epochs.cpp).
  void lose(Member& lost, LossKind kind, const std::string& reason);
  void break_epoch(std::string reason);
  void clear_epoch();
  void enter_phase(Phase phase);
  void send_assignment(const Place& place);
  void form();
  void begin_closing();
  void close();
  void ask_reform();
  // Follows every transition that is due.
  void settle();
  void give_up_absent();

  State& s_;
  const MonotonicTime now_;
  Actions actions_;
};

}  // namespace tilewright::rendezvous
