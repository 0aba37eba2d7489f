// The transitions of the state machine in membership.h. Each call of step() creates one Step
// object.
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {
namespace {

bool can_use(const std::vector<std::string>& isas, const std::string& isa) {
  return std::ranges::find(isas, isa) != isas.end();
}

constexpr const char* kJobHasFinished = "the job has finished";
constexpr const char* kWorkerJoined = "a worker joined";
constexpr const char* kReplacedByNewer = "replaced by a newer process";

// Limit of remembered replaced instances. Each is one restart of a process, so a job has few.
constexpr std::size_t kMaxFenced = 1024;

std::string list(const std::vector<std::string>& isas) {
  return fmt::format("{}", fmt::join(isas, ", "));
}

// Those of `isas` that are in `others` too, in the order of `isas`.
std::vector<std::string> common_isas(const std::vector<std::string>& isas,
                                     const std::vector<std::string>& others) {
  std::vector<std::string> common;
  std::ranges::copy_if(isas, std::back_inserter(common), [&](const std::string& isa) {
    return std::ranges::find(others, isa) != others.end();
  });
  return common;
}

Epoch reported_epoch(const Join& join) {
  return join.held_assignment ? join.held_assignment->epoch : join.after_epoch;
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
  void operator()(const WorkerExited& exited);
  void operator()(const Expect& expect);
  void operator()(const Stalled& stalled);
  void operator()(const Tick&);

 private:
  // Constructs in place, because GCC 12 reports false maybe-uninitialized warnings for a moved
  // variant.
  template <typename What>
  void emit(What action) {
    actions_.emplace_back(std::in_place_type<What>, std::move(action));
  }

  Member* find_member(const MemberId& who);
  EpochMember* find_epoch_member(const MemberId& who);
  int rank_of(const EpochMember& epoch_member) const {
    return static_cast<int>(&epoch_member - s_.epoch_members.data());
  }
  // The epoch of a member; 0: none.
  Epoch current_epoch_of(const Member& member);
  // Whether a message of `epoch` is stale: `epoch` is not the member's epoch. A stale message
  // changes nothing. Its sender receives EndEpoch, except for epoch 0: that sender is still waiting
  // for its assignment.
  bool refuse_stale(const Member& member, Epoch epoch);
  void send_end_epoch(const MemberId& who, Epoch epoch);
  void refuse(const MemberId& who, std::string message);
  void refuse_after_end(const MemberId& who);
  void refuse_replaced(const MemberId& who);
  void set_state(Member& member, MemberState state);
  // A member has a checkpoint of this step. The job must not lose it when the member does.
  void note_checkpoint(std::int64_t checkpoint_step) {
    s_.last_checkpoint_step = std::max(s_.last_checkpoint_step, checkpoint_step);
  }

  // Admission. Adds the sender as a member, or updates it. A join counts as a heartbeat.
  Member& upsert_member(const Join& join, MemberState state);
  // Whether the sender of a join is admitted; removes older instances of its process.
  bool admit(const Join& join);
  // Refuses a member that shares no instruction set with the others, which none of them could be
  // in an epoch with.
  bool refuse_without_common_isa(const Join& join);
  // The instruction sets of all members but `except`, slowest first; empty without such members.
  std::vector<std::string> isas_in_common(const WorkerProcess& except) const;
  // Refuses a report of an epoch that cannot have formed. Later epochs would have to be above it,
  // and no message can carry a number above kMaxEpoch.
  bool refuse_impossible_epoch(const Join& join);
  // Whether the join of a reconnecting member makes its epoch the current one.
  bool holds_newer_epoch(const Join& join) const;
  // Refuses an instance whose place a newer one has taken, for example one that was lost with its
  // network and is back.
  bool refuse_older_instance(const Join& join);
  bool is_older_instance(const Join& join) const;
  void replace_older_instance(const MemberId& who);
  // Removes a member whose place a newer instance has taken.
  void remove_replaced(Member& old);
  // The same of a member of the current epoch that has not reconnected to this coordinator.
  void end_epoch_of_replaced(const EpochMember& old);
  void fence(const MemberId& who);
  // Continues the numbering above `epoch`, a later epoch than any known one, which a member gave
  // up.
  void raise_latest_epoch(Epoch epoch, const MemberId& who);
  // Handles a member of the current epoch that has not received its assignment yet.
  void resend_assignment(const Join& join, EpochMember& epoch_member);
  // The member has, or is sent, the assignment of its epoch, which is the current one.
  void enter_epoch(Member& member, EpochMember& epoch_member);
  // Handles a member of the current epoch that joins the next one.
  void rejoin(const Join& join, EpochMember& epoch_member);
  // Handles a member that reports its current epoch after a coordinator restart or a lost
  // connection.
  void reconnect(const Join& join);
  bool same_epoch_members(const std::vector<Peer>& peers) const;
  // Sends EndEpoch to a sender whose epoch has ended, and keeps it connected until it joins again.
  void reject_stale_epoch(const Join& join);
  // Makes the epoch that a member holds the current one, and ends it at once if one of its members
  // has been replaced.
  void adopt_epoch(const Join& join);

  // Losses.
  // Whether a member whose connection broke stays in its epoch for a moment.
  bool may_reconnect(const Member& member) const;
  // The disconnected members for which `which` holds.
  template <typename Predicate>
  std::vector<MemberId> find_disconnected(Predicate which) const;
  void remove_lost(Member& lost, LossKind kind, std::string reason);
  // Removes a member whose connection did not come back, and ends its epoch.
  void remove_disconnected(const MemberId& who, std::string_view why);
  void remove_all_disconnected(std::string_view why);
  // Whether the members that are connected have all reached the step boundary, and at least one
  // has. Their collectives tell apart a dead member and a broken connection by then.
  bool only_disconnected_missing() const;

  // Epochs.
  // Whether the member can be in the next epoch.
  bool is_waiting(const Member& member) const {
    return member.state == MemberState::kWaiting && !lacks_isa(s_, member);
  }
  void end_current_epoch(std::string reason);
  // Tells the members that the epoch has ended. The disconnected ones cannot hear it and are lost.
  void announce_epoch_end(bool job_finished);
  void clear_epoch();
  void enter_phase(Phase phase);
  void send_assignment(const EpochMember& epoch_member, const SharedPeers& peers);
  // The members of the next epoch by process, and the instruction sets that they have in common,
  // slowest first. If more wait than an epoch can have, those of the latest epoch, which have the
  // most advanced state, precede; then the process decides. Refuses those that have none in common
  // with the others, which is only possible if they were in an epoch of an earlier coordinator.
  std::vector<Member*> choose_members(std::vector<std::string>& isas);
  void form_epoch();
  void start_closing();
  void close();
  void request_reform();
  // Makes every transition that is due.
  void apply_due_transitions();
  void remove_absent();

  State& s_;
  const MonotonicTime now_;
  Actions actions_;
};

// --- events ---

void Step::operator()(const Join& join) {
  if (!admit(join)) return;
  const Epoch theirs = reported_epoch(join);
  if (EpochMember* epoch_member = find_epoch_member(join.who);
      epoch_member != nullptr && theirs < s_.latest_epoch)
    return resend_assignment(join, *epoch_member);
  if (join.after_epoch > s_.latest_epoch) raise_latest_epoch(join.after_epoch, join.who);
  if (join.held_assignment) {
    reconnect(join);
  } else if (EpochMember* epoch_member = find_epoch_member(join.who); epoch_member != nullptr) {
    rejoin(join, *epoch_member);
  } else {
    // An epoch ends for all members when one of them gives it up. Only its members can give up the
    // current epoch.
    if (!s_.current()) s_.last_ended_epoch = std::max(s_.last_ended_epoch, join.after_epoch);
    upsert_member(join, MemberState::kWaiting);
  }
  apply_due_transitions();
}

void Step::operator()(const Heartbeat& beat) {
  Member* member = find_member(beat.who);
  if (member == nullptr || refuse_stale(*member, beat.epoch)) return;
  member->last_seen = now_;
  if (beat.epoch == 0) return;
  member->progress = beat.progress;
  note_checkpoint(beat.progress.last_checkpoint_step);
}

void Step::operator()(const Finished& finished) {
  Member* member = find_member(finished.who);
  if (member == nullptr || refuse_stale(*member, finished.epoch)) return;
  EpochMember* epoch_member = find_epoch_member(finished.who);
  if (epoch_member == nullptr) return;
  member->last_seen = now_;
  epoch_member->finished = true;
  set_state(*member, MemberState::kFinished);
  emit(Acknowledge{finished.who});
  if (epoch_member == &s_.epoch_members.front()) start_closing();
  apply_due_transitions();
}

void Step::operator()(const Leave& leave) {
  Member* member = find_member(leave.who);
  // The message of a disconnected member would be from an earlier connection.
  if (member == nullptr || member->disconnected) return;
  remove_lost(*member, LossKind::kLeft, leave.reason);
  // While rebuilding: it leaves before it has received the epoch that the others report.
  if (const EpochMember* epoch_member = find_epoch_member(leave.who);
      epoch_member != nullptr && !epoch_member->present)
    end_current_epoch(fmt::format("{} left: {}", to_string(leave.who.process), leave.reason));
  apply_due_transitions();
}

void Step::operator()(const ConnectionClosed& closed) {
  Member* member = find_member(closed.who);
  if (member == nullptr || member->disconnected) return;
  if (may_reconnect(*member)) {
    member->disconnected = Disconnection{now_, closed.reason};
    emit(MemberDisconnected{closed.who, s_.latest_epoch, closed.reason});
  } else {
    remove_lost(*member, LossKind::kConnectionClosed, closed.reason);
  }
  apply_due_transitions();
}

void Step::operator()(const WorkerExited& exited) {
  const auto is_exited = [&](const Member& member) {
    const WorkerProcess& process = member.who.process;
    return process.worker_index == exited.worker_index &&
           process.local_rank == exited.local_rank.value_or(process.local_rank);
  };
  for (auto& [process, member] : s_.members)
    if (is_exited(member)) member.reported_exited = now_;
  for (const MemberId& who : find_disconnected(is_exited)) remove_disconnected(who, "it exited");
  apply_due_transitions();
}

void Step::operator()(const Expect& expect) {
  Settings& settings = s_.settings;
  settings.min_world = std::clamp(expect.min_world, 1, kMaxWorld);
  settings.max_world = std::clamp(expect.max_world, settings.min_world, kMaxWorld);
  settings.expected = std::clamp(expect.expected, settings.min_world, settings.max_world);
  s_.wait_for_expected_until = now_ + std::max(expect.timeout, Duration::zero());
  apply_due_transitions();
}

void Step::operator()(const Stalled& stalled) {
  // The owner's calls may have set a time during the gap.
  const auto shift = [&](MonotonicTime& time) { time = std::min(time + stalled.gap, now_); };
  for (MonotonicTime* time : {&s_.started, &s_.phase_started, &s_.last_join, &s_.first_rejoin})
    shift(*time);
  s_.wait_for_expected_until += stalled.gap;
  for (auto& [process, member] : s_.members) {
    shift(member.since);
    shift(member.last_seen);
    if (member.disconnected) shift(member.disconnected->since);
    if (member.reported_exited) shift(*member.reported_exited);
  }
}

void Step::operator()(const Tick&) {
  const auto is_due = [&](const Member& member) { return now_ >= member_deadline(s_, member); };
  const std::string why = fmt::format("it did not reconnect within {:.1f} s",
                                      in_seconds(s_.settings.reconnect_timeout));
  for (const MemberId& who : find_disconnected(is_due)) remove_disconnected(who, why);
  std::vector<MemberId> silent;
  for (const auto& [process, member] : s_.members) {
    if (!member.disconnected && is_due(member)) silent.push_back(member.who);
  }
  for (const MemberId& who : silent) {
    emit(CloseConnection{who});
    remove_lost(
        s_.members.at(who.process), LossKind::kHeartbeatsMissed,
        fmt::format("no heartbeat for {:.1f} s", in_seconds(s_.settings.heartbeat_timeout)));
  }
  apply_due_transitions();
}

Member* Step::find_member(const MemberId& who) {
  const auto found = s_.members.find(who.process);
  return found != s_.members.end() && found->second.who == who ? &found->second : nullptr;
}

EpochMember* Step::find_epoch_member(const MemberId& who) {
  const auto found = std::ranges::find_if(s_.epoch_members, [&](const EpochMember& epoch_member) {
    return epoch_member.peer.who == who;
  });
  return found == s_.epoch_members.end() ? nullptr : &*found;
}

Epoch Step::current_epoch_of(const Member& member) {
  const bool inside =
      member.state == MemberState::kInEpoch || member.state == MemberState::kFinished;
  return inside && find_epoch_member(member.who) != nullptr ? s_.latest_epoch : 0;
}

bool Step::refuse_stale(const Member& member, Epoch epoch) {
  if (epoch == current_epoch_of(member)) return false;
  if (epoch != 0) send_end_epoch(member.who, epoch);
  return true;
}

void Step::send_end_epoch(const MemberId& who, Epoch epoch) {
  const bool finished = s_.phase == Phase::kClosing || s_.phase == Phase::kClosed;
  std::string reason = finished ? kJobHasFinished : s_.end_reason;
  if (reason.empty()) reason = fmt::format("membership epoch {} is not the current one", epoch);
  emit(EndEpoch{who, epoch, std::move(reason), finished});
}

void Step::refuse(const MemberId& who, std::string message) {
  emit(Refuse{who, std::move(message)});
}

void Step::refuse_after_end(const MemberId& who) {
  emit(Refuse{.to = who, .message = kJobHasFinished, .job_finished = true});
}

void Step::refuse_replaced(const MemberId& who) {
  emit(Refuse{.to = who,
              .message = fmt::format("a newer process has replaced {}", to_string(who.process)),
              .replaced = true});
}

void Step::set_state(Member& member, MemberState state) {
  if (member.state == state) return;
  member.state = state;
  member.since = now_;
}

// --- admission: new members, new instances, members of epochs unknown to this coordinator ---

Member& Step::upsert_member(const Join& join, MemberState state) {
  auto [found, added] = s_.members.try_emplace(join.who.process);
  Member& member = found->second;
  if (added || (state == MemberState::kWaiting && member.state != MemberState::kWaiting))
    s_.last_join = now_;
  if (added) {
    member.who = join.who;
    member.state = state;
    member.since = now_;
  }
  set_state(member, state);
  member.address = join.address;
  member.isas = join.isas;
  member.last_seen = now_;
  member.disconnected.reset();
  member.reported_exited.reset();
  member.latest_epoch = std::max(member.latest_epoch, reported_epoch(join));
  note_checkpoint(join.last_checkpoint_step);
  return member;
}

bool Step::admit(const Join& join) {
  if (s_.phase == Phase::kClosed) {
    refuse_after_end(join.who);
    return false;
  }
  if (s_.phase == Phase::kClosing) {
    const bool same_epoch = join.held_assignment && join.held_assignment->epoch == s_.latest_epoch;
    if (same_epoch && find_epoch_member(join.who) != nullptr &&
        same_epoch_members(join.held_assignment->peers))
      return true;
    if (Member* member = find_member(join.who); member != nullptr && current_epoch_of(*member) != 0)
      remove_lost(*member, LossKind::kLeft, "joined again while the job was closing");
    refuse_after_end(join.who);
    apply_due_transitions();
    return false;
  }
  if (std::ranges::find(s_.fenced, join.who) != s_.fenced.end()) {
    refuse_replaced(join.who);
    return false;
  }
  if (refuse_impossible_epoch(join)) return false;
  // A member of the current epoch has its instruction set, whatever those that wait can use.
  if (find_epoch_member(join.who) == nullptr && !holds_newer_epoch(join) &&
      refuse_without_common_isa(join)) {
    return false;
  }
  const auto existing = s_.members.find(join.who.process);
  if (existing == s_.members.end() && s_.members.size() >= kMaxWorld) {
    refuse(join.who,
           fmt::format("the job already has {} processes, the maximum", s_.members.size()));
    return false;
  }
  if (refuse_older_instance(join)) return false;
  replace_older_instance(join.who);
  return true;
}

bool Step::refuse_without_common_isa(const Join& join) {
  if (s_.settings.exact && !s_.isa.empty()) return false;  // it waits; see lacks_isa()
  const std::vector<std::string> others = isas_in_common(join.who.process);
  if (others.empty() || !common_isas(others, join.isas).empty()) return false;
  refuse(join.who,
         fmt::format("{} can use the instruction sets {}, the other workers of the job {}; "
                     "expected one in common (see TILEWRIGHT_ISA)",
                     to_string(join.who.process), list(join.isas), list(others)));
  return true;
}

std::vector<std::string> Step::isas_in_common(const WorkerProcess& except) const {
  std::optional<std::vector<std::string>> common;
  for (const auto& [process, member] : s_.members) {
    if (process == except) continue;
    common = common ? common_isas(*common, member.isas) : member.isas;
  }
  return common.value_or(std::vector<std::string>());
}

bool Step::refuse_impossible_epoch(const Join& join) {
  const Epoch limit = std::max(s_.latest_epoch, s_.max_reported_epoch);
  if (reported_epoch(join) <= limit) return false;
  refuse(join.who,
         fmt::format("{} reports epoch {}, expected at most {}: the job cannot have reached it",
                     to_string(join.who.process), reported_epoch(join), limit));
  return true;
}

bool Step::holds_newer_epoch(const Join& join) const {
  return join.held_assignment && join.held_assignment->epoch > s_.last_ended_epoch &&
         join.held_assignment->epoch >= s_.latest_epoch + (s_.current() ? 1 : 0);
}

bool Step::refuse_older_instance(const Join& join) {
  if (!is_older_instance(join)) return false;
  fence(join.who);
  refuse_replaced(join.who);
  return true;
}

bool Step::is_older_instance(const Join& join) const {
  const Epoch theirs = reported_epoch(join);
  if (theirs == 0) return false;
  std::optional<Epoch> others;
  if (const auto other = s_.members.find(join.who.process); other != s_.members.end()) {
    if (other->second.who == join.who) return false;
    others = other->second.latest_epoch;
  }
  // A member of the current epoch may not have reconnected to this coordinator, which has
  // restarted.
  if (std::ranges::any_of(s_.epoch_members, [&](const EpochMember& one) {
        return one.peer.who.process == join.who.process && one.peer.who != join.who;
      }))
    others = s_.latest_epoch;
  if (!others) return false;
  // Without a report of the other one, the coordinator may not know this one's epoch yet.
  return *others == 0 ? !holds_newer_epoch(join) : theirs < *others;
}

void Step::replace_older_instance(const MemberId& who) {
  if (const auto existing = s_.members.find(who.process);
      existing != s_.members.end() && existing->second.who != who)
    remove_replaced(existing->second);
  // While rebuilding: the older process of the held epoch has not reconnected and is now fenced.
  const auto epoch_member = std::ranges::find_if(s_.epoch_members, [&](const EpochMember& p) {
    return p.peer.who.process == who.process && p.peer.who != who && !p.finished && !p.rejoined;
  });
  if (epoch_member == s_.epoch_members.end()) return;
  fence(epoch_member->peer.who);
  end_epoch_of_replaced(*epoch_member);
}

void Step::remove_replaced(Member& old) {
  fence(old.who);
  refuse_replaced(old.who);
  remove_lost(old, LossKind::kReplaced, kReplacedByNewer);
}

void Step::end_epoch_of_replaced(const EpochMember& old) {
  const MemberId who = old.peer.who;
  emit(MemberLost{who, s_.latest_epoch, rank_of(old), LossKind::kReplaced, kReplacedByNewer});
  end_current_epoch(fmt::format("{} was {}", to_string(who.process), kReplacedByNewer));
}

void Step::fence(const MemberId& who) {
  if (s_.fenced.size() >= kMaxFenced) s_.fenced.pop_front();
  s_.fenced.push_back(who);
}

void Step::raise_latest_epoch(Epoch epoch, const MemberId& who) {
  if (s_.current())
    end_current_epoch(
        fmt::format("{} reported the later membership epoch {}", to_string(who.process), epoch));
  s_.latest_epoch = s_.last_ended_epoch = epoch;
}

void Step::resend_assignment(const Join& join, EpochMember& epoch_member) {
  if (epoch_member.rejoined || epoch_member.finished) return;
  // A process keeps the set of its membership epoch.
  if (!can_use(join.isas, s_.isa))
    return refuse(
        join.who,
        fmt::format("{} can use the instruction sets {}, but its membership epoch uses {}",
                    to_string(join.who.process), list(join.isas), s_.isa));
  send_assignment(epoch_member, peers_of(s_));
  if (const Member* member = find_member(join.who);
      epoch_member.present && (member == nullptr || !member->disconnected))
    return;
  enter_epoch(upsert_member(join, MemberState::kInEpoch), epoch_member);
  apply_due_transitions();
}

void Step::enter_epoch(Member& member, EpochMember& epoch_member) {
  epoch_member.present = true;
  set_state(member, MemberState::kInEpoch);
  member.last_rank = rank_of(epoch_member);
  member.latest_epoch = s_.latest_epoch;
}

void Step::rejoin(const Join& join, EpochMember& epoch_member) {
  if (epoch_member.finished) return;
  if (s_.phase == Phase::kDraining) {
    if (std::ranges::none_of(s_.epoch_members, &EpochMember::rejoined)) s_.first_rejoin = now_;
    epoch_member.rejoined = true;
    upsert_member(join, MemberState::kWaiting);
    return;
  }
  upsert_member(join, MemberState::kWaiting);
  // A member's collectives fail when another member dies, so a broken connection is a death.
  const std::string gave_up =
      fmt::format("{} gave up the membership epoch", to_string(join.who.process));
  remove_all_disconnected(gave_up);
  if (s_.current()) end_current_epoch(gave_up);
}

void Step::reconnect(const Join& join) {
  const Assignment& held = *join.held_assignment;
  EpochMember* epoch_member = find_epoch_member(join.who);
  if (held.epoch <= s_.last_ended_epoch || held.epoch < s_.latest_epoch)
    return reject_stale_epoch(join);
  const bool current = s_.current() && held.epoch == s_.latest_epoch;
  // The bounds may have changed since the current epoch formed.
  const bool fits =
      current || (held.world >= s_.settings.min_world && held.world <= s_.settings.max_world);
  const bool has_isa = can_use(join.isas, held.isa) &&
                       (held.isa == s_.isa || s_.isa.empty() || (!current && !s_.settings.exact));
  const bool sound = held.world == static_cast<int>(held.peers.size()) && held.rank >= 0 &&
                     held.rank < held.world && fits && has_isa &&
                     held.peers[static_cast<std::size_t>(held.rank)].who == join.who;
  const bool disagrees = current && !same_epoch_members(held.peers);
  if (!sound || disagrees) {
    if (s_.current())
      end_current_epoch(fmt::format("{} reported a different membership epoch {}",
                                    to_string(join.who.process), held.epoch));
    s_.latest_epoch = s_.last_ended_epoch = std::max(s_.latest_epoch, held.epoch);
    return reject_stale_epoch(join);
  }
  if (holds_newer_epoch(join)) {
    adopt_epoch(join);
    epoch_member = find_epoch_member(join.who);
  }
  if (epoch_member == nullptr)
    return reject_stale_epoch(join);  // another member of the epoch was lost
  if (epoch_member->rejoined) return;
  epoch_member->present = true;
  upsert_member(join, epoch_member->finished ? MemberState::kFinished : MemberState::kInEpoch)
      .last_rank = rank_of(*epoch_member);
  if (s_.phase == Phase::kDraining) emit(RequestReform{join.who, s_.latest_epoch, kWorkerJoined});
}

bool Step::same_epoch_members(const std::vector<Peer>& peers) const {
  return std::ranges::equal(s_.epoch_members, peers, {}, &EpochMember::peer);
}

void Step::reject_stale_epoch(const Join& join) {
  if (refuse_without_common_isa(join)) return;
  send_end_epoch(join.who, join.held_assignment->epoch);
  if (find_member(join.who) == nullptr) upsert_member(join, MemberState::kNotRejoined);
}

void Step::adopt_epoch(const Join& join) {
  const Assignment& held = *join.held_assignment;
  if (s_.current())
    end_current_epoch(fmt::format("a member reported the later membership epoch {}", held.epoch));
  s_.latest_epoch = held.epoch;
  s_.last_ended_epoch = held.epoch - 1;
  s_.resume_step = held.resume_step;
  note_checkpoint(held.resume_step);
  s_.formed_before = false;
  for (const Peer& peer : held.peers) s_.epoch_members.push_back({.peer = peer});
  enter_phase(Phase::kRebuilding);
  s_.isa = held.isa;
  for (const EpochMember& epoch_member : s_.epoch_members) {
    const Peer& peer = epoch_member.peer;
    const auto existing = s_.members.find(peer.who.process);
    const bool differs = existing != s_.members.end() && existing->second.who != peer.who;
    const Epoch others = differs ? existing->second.latest_epoch : 0;
    const bool is_older = others != 0 && others < held.epoch;
    if (is_older) remove_replaced(existing->second);
    const bool superseded = differs && !is_older;
    const bool fenced = std::ranges::find(s_.fenced, peer.who) != s_.fenced.end();
    if (!superseded && !fenced) continue;
    if (superseded && !fenced) fence(peer.who);
    return end_epoch_of_replaced(epoch_member);
  }
  // Members that wait: the earlier coordinator ended before their assignment reached them.
  const SharedPeers peers = peers_of(s_);
  for (EpochMember& epoch_member : s_.epoch_members) {
    Member* member = find_member(epoch_member.peer.who);
    if (member == nullptr || member->who == join.who || member->state != MemberState::kWaiting ||
        !can_use(member->isas, s_.isa)) {
      continue;
    }
    send_assignment(epoch_member, peers);
    enter_epoch(*member, epoch_member);
  }
}

// --- epochs: begin, end, and the end of the job ---

bool Step::may_reconnect(const Member& member) const {
  const Duration timeout = s_.settings.reconnect_timeout;
  const bool exited = member.reported_exited && now_ - *member.reported_exited < timeout;
  // A closing job does not wait: the member may still report that it has finished.
  return member.state == MemberState::kInEpoch && s_.phase != Phase::kClosing && !exited &&
         timeout > Duration::zero();
}

template <typename Predicate>
std::vector<MemberId> Step::find_disconnected(Predicate which) const {
  std::vector<MemberId> found;
  for (const auto& [process, member] : s_.members) {
    if (member.disconnected && which(member)) found.push_back(member.who);
  }
  return found;
}

bool Step::only_disconnected_missing() const {
  return std::ranges::any_of(s_.epoch_members, &EpochMember::rejoined) &&
         std::ranges::all_of(s_.epoch_members, [&](const EpochMember& p) {
           const auto member = s_.members.find(p.peer.who.process);
           return p.rejoined || p.finished ||
                  (member != s_.members.end() && member->second.disconnected.has_value());
         });
}

void Step::remove_disconnected(const MemberId& who, std::string_view why) {
  Member* member = find_member(who);
  if (member == nullptr) return;  // its epoch has ended
  remove_lost(*member, LossKind::kConnectionClosed,
              fmt::format("{}; {}", member->disconnected->reason, why));
}

void Step::remove_all_disconnected(std::string_view why) {
  for (const MemberId& who : find_disconnected([](const Member&) { return true; }))
    remove_disconnected(who, why);
}

void Step::remove_lost(Member& lost, LossKind kind, std::string reason) {
  const Member member = lost;
  const Epoch epoch = current_epoch_of(member);
  s_.members.erase(member.who.process);
  if (member.state == MemberState::kFinished) return;  // a finished process exits: not a loss
  emit(MemberLost{member.who, epoch, member.last_rank, kind, reason});
  if (epoch == 0) return;
  if (s_.phase == Phase::kClosing) {
    find_epoch_member(member.who)->finished = true;  // the closing job does not wait for it
    return;
  }
  end_current_epoch(
      fmt::format("{} was lost ({}): {}", to_string(member.who.process), to_string(kind), reason));
}

void Step::end_current_epoch(std::string reason) {
  s_.end_reason = std::move(reason);
  announce_epoch_end(false);
  clear_epoch();
}

void Step::announce_epoch_end(bool job_finished) {
  for (const EpochMember& epoch_member : s_.epoch_members) {
    Member* member = find_member(epoch_member.peer.who);
    if (member == nullptr || member->state != MemberState::kInEpoch) continue;
    if (member->disconnected) {
      emit(MemberLost{member->who, s_.latest_epoch, member->last_rank, LossKind::kConnectionClosed,
                      member->disconnected->reason});
      s_.members.erase(member->who.process);
      continue;
    }
    emit(EndEpoch{member->who, s_.latest_epoch, s_.end_reason, job_finished});
    set_state(*member, MemberState::kNotRejoined);
  }
}

void Step::clear_epoch() {
  s_.epoch_members.clear();
  s_.last_ended_epoch = s_.latest_epoch;
  enter_phase(Phase::kGathering);
}

void Step::enter_phase(Phase phase) {
  s_.phase = phase;
  s_.phase_started = now_;
}

void Step::send_assignment(const EpochMember& epoch_member, const SharedPeers& peers) {
  emit(Assign{epoch_member.peer.who, assignment_of(s_, rank_of(epoch_member)), peers});
}

std::vector<Member*> Step::choose_members(std::vector<std::string>& isas) {
  std::vector<Member*> waiting, chosen;
  for (auto& [process, member] : s_.members) {
    if (is_waiting(member)) waiting.push_back(&member);
  }
  std::ranges::stable_sort(waiting, std::ranges::greater(), &Member::latest_epoch);
  std::vector<MemberId> without_common_isa;
  for (Member* member : waiting) {
    if (static_cast<int>(chosen.size()) == s_.settings.max_world) break;
    std::vector<std::string> common =
        chosen.empty() ? member->isas : common_isas(isas, member->isas);
    if (common.empty()) {
      without_common_isa.push_back(member->who);
      continue;
    }
    isas = std::move(common);
    chosen.push_back(member);
  }
  std::ranges::sort(chosen, {}, [](const Member* member) { return member->who.process; });
  for (const MemberId& who : without_common_isa) {
    refuse(who, fmt::format("{} has no instruction set in common with the other workers of the job",
                            to_string(who.process)));
    s_.members.erase(who.process);
  }
  return chosen;
}

void Step::form_epoch() {
  std::vector<std::string> isas;
  const std::vector<Member*> chosen = choose_members(isas);
  if (static_cast<int>(chosen.size()) < s_.settings.min_world) return;
  if (!s_.settings.exact || s_.isa.empty()) s_.isa = isas.back();
  s_.resume_step = s_.last_checkpoint_step;
  for (Member* member : chosen) {
    member->last_rank = static_cast<int>(s_.epoch_members.size());
    s_.epoch_members.push_back({.peer = {member->who, member->address}, .present = true});
    set_state(*member, MemberState::kInEpoch);
    member->progress = {};
  }
  ++s_.latest_epoch;
  for (Member* member : chosen) member->latest_epoch = s_.latest_epoch;
  s_.last_ended_epoch = s_.latest_epoch - 1;
  s_.formed_before = false;
  enter_phase(Phase::kRunning);
  const SharedPeers peers = peers_of(s_);
  for (const EpochMember& epoch_member : s_.epoch_members) send_assignment(epoch_member, peers);
}

void Step::start_closing() {
  enter_phase(Phase::kClosing);
  std::erase_if(s_.members, [&](const auto& entry) {
    if (current_epoch_of(entry.second) != 0) return false;
    refuse_after_end(entry.second.who);
    return true;
  });
  for (EpochMember& epoch_member : s_.epoch_members)
    epoch_member.finished = epoch_member.finished || epoch_member.rejoined;
}

void Step::close() {
  s_.end_reason = kJobHasFinished;
  announce_epoch_end(true);
  clear_epoch();
  enter_phase(Phase::kClosed);
}

void Step::request_reform() {
  enter_phase(Phase::kDraining);
  for (const EpochMember& epoch_member : s_.epoch_members)
    emit(RequestReform{epoch_member.peer.who, s_.latest_epoch, kWorkerJoined});
}

void Step::apply_due_transitions() {
  const auto deadline = phase_deadline(s_);
  const bool due = deadline && now_ >= *deadline;
  switch (s_.phase) {
    case Phase::kGathering:
      if (due) form_epoch();
      break;
    case Phase::kRebuilding:
      if (std::ranges::all_of(s_.epoch_members,
                              [](const EpochMember& p) { return p.present || p.finished; })) {
        enter_phase(Phase::kRunning);
        return apply_due_transitions();
      }
      if (due) {
        remove_absent();
        return apply_due_transitions();
      }
      break;
    case Phase::kRunning: {
      const bool new_member = std::ranges::any_of(
          s_.members, [this](const auto& entry) { return is_waiting(entry.second); });
      const bool below_maximum = static_cast<int>(s_.epoch_members.size()) < s_.settings.max_world;
      if (new_member && below_maximum &&
          std::ranges::none_of(s_.epoch_members, &EpochMember::finished))
        request_reform();
      break;
    }
    case Phase::kDraining:
      if (std::ranges::all_of(s_.epoch_members,
                              [](const EpochMember& p) { return p.rejoined || p.finished; })) {
        s_.end_reason = "the membership epoch ended at a step boundary because a worker joined";
        clear_epoch();
        return apply_due_transitions();
      }
      if (only_disconnected_missing()) {
        remove_all_disconnected("the others reached the step boundary");
        return apply_due_transitions();
      }
      if (due) {
        end_current_epoch(fmt::format("not all members reached the step boundary within {:.1f} s",
                                      in_seconds(s_.settings.rejoin_timeout)));
        return apply_due_transitions();
      }
      break;
    case Phase::kClosing:
      if (due || std::ranges::all_of(s_.epoch_members, &EpochMember::finished)) close();
      break;
    case Phase::kClosed:
      break;
  }
}

void Step::remove_absent() {
  const std::string reason =
      fmt::format("did not reconnect within {:.1f} s of the coordinator's restart",
                  in_seconds(s_.settings.recovery_timeout));
  std::string first_absent;
  for (const EpochMember& epoch_member : s_.epoch_members) {
    if (epoch_member.present || epoch_member.finished) continue;
    emit(MemberLost{epoch_member.peer.who, s_.latest_epoch, rank_of(epoch_member),
                    LossKind::kHeartbeatsMissed, reason});
    if (first_absent.empty()) first_absent = to_string(epoch_member.peer.who.process);
  }
  end_current_epoch(fmt::format("{} {}", first_absent, reason));
}

}  // namespace

Actions step(State& state, const Event& event, MonotonicTime now) {
  Step one(state, now);
  std::visit(one, event);
  return one.take();
}

}  // namespace tilewright::rendezvous
