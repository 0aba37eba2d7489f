// The transitions of membership.h's drawing: one class whose life is one call of step().
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {
namespace {

// Replaced incarnations that are remembered; each costs its seat a restart, so a job has few.
constexpr std::size_t kMaxFenced = 1024;
constexpr const char* kJobHasFinished = "the job has finished";
constexpr const char* kNewcomer = "a worker has joined";

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// One call of step().
class Step {
 public:
  Step(State& state, MonotonicTime now) : s_(state), now_(now) {}
  Actions take() { return std::move(actions_); }

  void operator()(const Join& join) {
    if (!admit(join)) return;
    const Epoch theirs = join.holding ? join.holding->epoch : join.after_epoch;
    if (Place* place = find_place(join.who); place != nullptr && theirs < s_.latest)
      return assign_again(join, *place);
    if (join.after_epoch > s_.latest) hear_of(join.after_epoch, join.who);
    if (join.holding) {
      claim(join);
    } else if (Place* place = find_place(join.who); place != nullptr) {
      rejoin(join, *place);
    } else {
      // Whoever gives up an epoch ends it for all; the current one only its own members can give
      // up.
      if (!s_.current()) s_.over = std::max(s_.over, join.after_epoch);
      enter(join, Standing::kWaiting);
    }
    settle();
  }

  void operator()(const Heartbeat& beat) {
    Member* member = find_member(beat.who);
    if (member == nullptr || refuse_stale(*member, beat.epoch)) return;
    member->last_seen = now_;
    if (beat.epoch == 0) return;
    member->progress = beat.progress;
    member->last_checkpoint_step =
        std::max(member->last_checkpoint_step, beat.progress.last_checkpoint_step);
  }

  void operator()(const Finished& finished) {
    Member* member = find_member(finished.who);
    if (member == nullptr || refuse_stale(*member, finished.epoch)) return;
    Place* place = find_place(finished.who);
    if (place == nullptr) return;
    member->last_seen = now_;
    place->finished = true;
    stand(*member, Standing::kFinished);
    act(Acknowledge{finished.who});
    if (place == &s_.roster.front()) begin_closing();
    settle();
  }

  void operator()(const Leave& leave) {
    Member* member = find_member(leave.who);
    if (member == nullptr || refuse_stale(*member, leave.epoch)) return;
    lose(*member, LossKind::kLeft, leave.reason);
    settle();
  }

  void operator()(const ConnectionClosed& closed) {
    Member* member = find_member(closed.who);
    if (member == nullptr) return;
    lose(*member, LossKind::kConnectionClosed, closed.reason);
    settle();
  }

  void operator()(const Expect& expect) {
    s_.settings.expected = std::clamp(expect.world, s_.settings.min_world, s_.settings.max_world);
    s_.patience_until = now_ + std::max(expect.patience, Duration::zero());
    settle();
  }

  void operator()(const Tick&) {
    std::vector<MemberId> silent;
    for (const auto& [seat, member] : s_.members) {
      if (now_ - member.last_seen >= s_.settings.heartbeat_timeout) silent.push_back(member.who);
    }
    for (const MemberId& who : silent) {
      act(Drop{who});
      lose(s_.members.at(who.seat), LossKind::kHeartbeatsMissed,
           fmt::format("no heartbeat for {:.1f} s", seconds(s_.settings.heartbeat_timeout)));
    }
    settle();
  }

 private:
  // In place: GCC 12 warns of moves out of a variant that never happen.
  template <typename What>
  void act(What action) {
    actions_.emplace_back(std::in_place_type<What>, std::move(action));
  }

  Member* find_member(const MemberId& who) {
    const auto found = s_.members.find(who.seat);
    return found != s_.members.end() && found->second.who == who ? &found->second : nullptr;
  }

  Place* find_place(const MemberId& who) {
    const auto found =
        std::ranges::find_if(s_.roster, [&](const Place& place) { return place.peer.who == who; });
    return found == s_.roster.end() ? nullptr : &*found;
  }

  // The epoch that a member is in; 0: none.
  Epoch own_epoch(const Member& member) {
    const bool inside =
        member.standing == Standing::kInEpoch || member.standing == Standing::kFinished;
    return inside && find_place(member.who) != nullptr ? s_.latest : 0;
  }

  // A message of another epoch than the member's changes nothing; its sender is told, unless it
  // will learn of its assignment by the next message anyway.
  bool refuse_stale(const Member& member, Epoch epoch) {
    if (epoch == own_epoch(member)) return false;
    if (epoch != 0) end_epoch(member.who, epoch);
    return true;
  }

  void end_epoch(const MemberId& who, Epoch epoch) {
    const bool finished = s_.phase == Phase::kClosing || s_.phase == Phase::kClosed;
    std::string reason = finished ? kJobHasFinished : s_.last_end;
    if (reason.empty()) reason = fmt::format("epoch {} is not the current one", epoch);
    act(EndEpoch{who, epoch, std::move(reason), finished});
  }

  void refuse(const MemberId& who, std::string sentence, bool finished = false) {
    act(Refuse{who, std::move(sentence), finished});
  }

  void stand(Member& member, Standing standing) {
    if (member.standing == standing) return;
    member.standing = standing;
    member.since = now_;
  }

  // Takes the sender in as a member, or renews it. Joining counts as being seen.
  Member& enter(const Join& join, Standing standing) {
    auto [found, added] = s_.members.try_emplace(join.who.seat);
    Member& member = found->second;
    if (added || (standing == Standing::kWaiting && member.standing != Standing::kWaiting))
      s_.last_join = now_;
    if (added) {
      member.who = join.who;
      member.standing = standing;
      member.since = now_;
    }
    stand(member, standing);
    member.address = join.address;
    member.isa = join.isa;
    member.last_seen = now_;
    member.last_checkpoint_step = std::max(member.last_checkpoint_step, join.last_checkpoint_step);
    return member;
  }

  // Whether a Join may be looked at, after older incarnations of its seat have been turned out.
  bool admit(const Join& join) {
    if (s_.phase == Phase::kClosed) return refuse(join.who, kJobHasFinished, true), false;
    if (s_.phase == Phase::kClosing) {
      const bool same_epoch = join.holding && join.holding->epoch == s_.latest;
      if (same_epoch && find_place(join.who) != nullptr && same_roster(join.holding->peers))
        return true;
      if (Member* member = find_member(join.who); member != nullptr && own_epoch(*member) != 0)
        lose(*member, LossKind::kLeft, "joined again while the job was closing");
      refuse(join.who, kJobHasFinished, true);
      settle();
      return false;
    }
    if (std::ranges::find(s_.fenced, join.who) != s_.fenced.end()) {
      refuse(join.who,
             fmt::format("a newer process has taken the seat of {}", to_string(join.who.seat)));
      return false;
    }
    if (!takes_over(join) && refuse_other_isa(join)) return false;
    const auto seated = s_.members.find(join.who.seat);
    if (seated == s_.members.end() && s_.members.size() >= kMaxWorld) {
      refuse(join.who, fmt::format("the job has {} processes already, and no more have room",
                                   s_.members.size()));
      return false;
    }
    replace_older(join.who);
    return true;
  }

  bool refuse_other_isa(const Join& join) {
    for (const auto& [seat, other] : s_.members) {
      if (seat == join.who.seat || other.isa == join.isa) continue;
      refuse(join.who, other_isa(join.who.seat, join.isa,
                                 fmt::format("{} ({})", other.isa, to_string(seat))));
      return true;
    }
    return false;
  }

  static std::string other_isa(const Seat& seat, const std::string& isa, const std::string& jobs) {
    return fmt::format(
        "{} computes with the instruction set {}, the job with {}: all workers of a job must use "
        "the same one (see TILEWRIGHT_ISA)",
        to_string(seat), isa, jobs);
  }

  // Whether a claim makes another epoch the current one.
  bool takes_over(const Join& join) const {
    return join.holding && join.holding->epoch > s_.over &&
           join.holding->epoch >= s_.latest + (s_.current() ? 1 : 0);
  }

  void replace_older(const MemberId& who) {
    if (const auto seated = s_.members.find(who.seat);
        seated != s_.members.end() && seated->second.who != who) {
      const MemberId old = seated->second.who;
      fence(old);
      refuse(old, fmt::format("a newer process has taken the seat of {}", to_string(old.seat)));
      lose(seated->second, LossKind::kReplaced, "replaced by a newer process");
    }
    // Rebuilding: the seat's old process has not come back, and now never will.
    const auto place = std::ranges::find_if(s_.roster, [&](const Place& p) {
      return p.peer.who.seat == who.seat && p.peer.who != who && !p.finished && !p.left;
    });
    if (place == s_.roster.end()) return;
    const MemberId old = place->peer.who;
    fence(old);
    act(Lost{old, s_.latest, LossKind::kReplaced, "replaced by a newer process"});
    break_epoch(fmt::format("{} was replaced by a newer process", to_string(old.seat)));
  }

  void fence(const MemberId& who) {
    if (s_.fenced.size() >= kMaxFenced) s_.fenced.pop_front();
    s_.fenced.push_back(who);
  }

  // A member gave up an epoch later than any known here: numbers go on above it.
  void hear_of(Epoch epoch, const MemberId& who) {
    if (s_.current())
      break_epoch(fmt::format("{} comes from the later epoch {}", to_string(who.seat), epoch));
    s_.latest = s_.over = epoch;
  }

  // A member of the current epoch has not seen its assignment yet.
  void assign_again(const Join& join, Place& place) {
    if (place.left || place.finished) return;
    send_assignment(place);
    if (place.present) return;
    place.present = true;
    enter(join, Standing::kInEpoch);
    settle();
  }

  // A member of the current epoch asks for the next one.
  void rejoin(const Join& join, Place& place) {
    if (place.finished) return;
    if (s_.phase == Phase::kDraining) {
      if (std::ranges::none_of(s_.roster, &Place::left)) s_.first_left = now_;
      place.left = true;
      enter(join, Standing::kWaiting);
      return;
    }
    enter(join, Standing::kWaiting);
    break_epoch(fmt::format("{} gave up the epoch", to_string(join.who.seat)));
  }

  // A member says that it is in an epoch: after a restart of the coordinator, or when it has lost
  // its connection to this one.
  void claim(const Join& join) {
    const Assignment& held = *join.holding;
    Place* place = find_place(join.who);
    if (held.epoch <= s_.over || held.epoch < s_.latest) return turn_out(join);
    const bool sound = held.world == static_cast<int>(held.peers.size()) && held.rank >= 0 &&
                       held.rank < held.world && held.world >= s_.settings.min_world &&
                       held.world <= s_.settings.max_world &&
                       held.peers[static_cast<std::size_t>(held.rank)].who == join.who;
    const bool disagrees = s_.current() && held.epoch == s_.latest && !same_roster(held.peers);
    if (!sound || disagrees) {
      if (s_.current())
        break_epoch(
            fmt::format("{} has another idea of epoch {}", to_string(join.who.seat), held.epoch));
      s_.latest = s_.over = std::max(s_.latest, held.epoch);
      return turn_out(join);
    }
    if (takes_over(join)) {
      take_up(join);
      place = find_place(join.who);
    }
    if (place == nullptr) return turn_out(join);  // somebody else of the epoch is known to be dead
    if (place->left) return;
    place->present = true;
    enter(join, place->finished ? Standing::kFinished : Standing::kInEpoch);
    if (s_.phase == Phase::kDraining) act(AskReform{join.who, s_.latest, kNewcomer});
  }

  bool same_roster(const std::vector<Peer>& peers) const {
    return std::ranges::equal(s_.roster, peers, {}, &Place::peer);
  }

  // The epoch that the sender claims is over: it is connected, and expected to join again.
  void turn_out(const Join& join) {
    if (refuse_other_isa(join)) return;
    end_epoch(join.who, join.holding->epoch);
    if (find_member(join.who) == nullptr) enter(join, Standing::kOutstanding);
  }

  // Makes the epoch that a member holds the current one, as far as it can still be whole.
  void take_up(const Join& join) {
    const Assignment& held = *join.holding;
    if (s_.current()) break_epoch(fmt::format("the later epoch {} is in use", held.epoch));
    s_.latest = held.epoch;
    s_.over = held.epoch - 1;
    s_.resume_step = held.resume_step;
    s_.formed_before = false;
    for (const Peer& peer : held.peers) s_.roster.push_back({.peer = peer});
    enter_phase(Phase::kRebuilding);
    // The epoch decides on the instruction set, not who came first after the restart.
    std::erase_if(s_.members, [&](const auto& entry) {
      const Member& member = entry.second;
      if (member.isa == join.isa || member.who == join.who) return false;
      refuse(member.who, other_isa(member.who.seat, member.isa, join.isa));
      return true;
    });
    for (const Peer& peer : held.peers) {
      const auto seated = s_.members.find(peer.who.seat);
      const bool superseded = seated != s_.members.end() && seated->second.who != peer.who;
      const bool fenced = std::ranges::find(s_.fenced, peer.who) != s_.fenced.end();
      if (!superseded && !fenced) continue;
      if (superseded && !fenced) fence(peer.who);
      act(Lost{peer.who, held.epoch, LossKind::kReplaced, "replaced by a newer process"});
      break_epoch(fmt::format("{} was replaced by a newer process", to_string(peer.who.seat)));
      return;
    }
  }

  void lose(Member& lost, LossKind kind, const std::string& reason) {
    const Member member = lost;
    const Epoch epoch = own_epoch(member);
    s_.members.erase(member.who.seat);
    if (member.standing == Standing::kFinished) return;  // its process ends after it has finished
    act(Lost{member.who, epoch, kind, reason});
    if (epoch == 0) return;
    if (s_.phase == Phase::kClosing) {
      find_place(member.who)->finished = true;  // the job is done without it
      return;
    }
    break_epoch(
        fmt::format("{} was lost ({}): {}", to_string(member.who.seat), to_string(kind), reason));
  }

  void break_epoch(std::string reason) {
    s_.last_end = std::move(reason);
    for (const Place& place : s_.roster) {
      Member* member = find_member(place.peer.who);
      if (member == nullptr || member->standing != Standing::kInEpoch) continue;
      act(EndEpoch{member->who, s_.latest, s_.last_end, false});
      stand(*member, Standing::kOutstanding);
    }
    clear_epoch();
  }

  void clear_epoch() {
    s_.roster.clear();
    s_.over = s_.latest;
    enter_phase(Phase::kGathering);
  }

  void enter_phase(Phase phase) {
    s_.phase = phase;
    s_.phase_since = now_;
  }

  void send_assignment(const Place& place) {
    const int rank = static_cast<int>(&place - s_.roster.data());
    act(Assign{place.peer.who, assignment_of(s_, rank)});
  }

  void form() {
    s_.resume_step = -1;
    for (auto& [seat, member] : s_.members) {
      if (member.standing != Standing::kWaiting) continue;
      if (static_cast<int>(s_.roster.size()) == s_.settings.max_world) break;
      s_.roster.push_back({.peer = {member.who, member.address}, .present = true});
      s_.resume_step = std::max(s_.resume_step, member.last_checkpoint_step);
      stand(member, Standing::kInEpoch);
      member.progress = {};
    }
    ++s_.latest;
    s_.over = s_.latest - 1;
    s_.formed_before = false;
    enter_phase(Phase::kRunning);
    for (const Place& place : s_.roster) send_assignment(place);
  }

  void begin_closing() {
    enter_phase(Phase::kClosing);
    std::erase_if(s_.members, [&](const auto& entry) {
      if (own_epoch(entry.second) != 0) return false;
      refuse(entry.second.who, kJobHasFinished, true);
      return true;
    });
    for (Place& place : s_.roster) place.finished = place.finished || place.left;
  }

  void close() {
    for (const Place& place : s_.roster) {
      Member* member = find_member(place.peer.who);
      if (member == nullptr || member->standing != Standing::kInEpoch) continue;
      act(EndEpoch{member->who, s_.latest, kJobHasFinished, true});
      stand(*member, Standing::kOutstanding);
    }
    clear_epoch();
    s_.last_end = kJobHasFinished;
    enter_phase(Phase::kClosed);
  }

  void ask_reform() {
    enter_phase(Phase::kDraining);
    for (const Place& place : s_.roster) act(AskReform{place.peer.who, s_.latest, kNewcomer});
  }

  // Follows every transition that is due.
  void settle() {
    const auto deadline = phase_deadline(s_);
    const bool due = deadline && now_ >= *deadline;
    switch (s_.phase) {
      case Phase::kGathering:
        if (due) form();
        break;
      case Phase::kRebuilding:
        if (std::ranges::all_of(s_.roster,
                                [](const Place& p) { return p.present || p.finished; })) {
          enter_phase(Phase::kRunning);
          return settle();
        }
        if (due) {
          give_up_absent();
          return settle();
        }
        break;
      case Phase::kRunning: {
        const bool newcomer = std::ranges::any_of(
            s_.members, [](const auto& m) { return m.second.standing == Standing::kWaiting; });
        const bool room = static_cast<int>(s_.roster.size()) < s_.settings.max_world;
        if (newcomer && room && s_.settings.growth == Growth::kAtBoundary &&
            std::ranges::none_of(s_.roster, &Place::finished))
          ask_reform();
        break;
      }
      case Phase::kDraining:
        if (std::ranges::all_of(s_.roster, [](const Place& p) { return p.left || p.finished; })) {
          s_.last_end = "the epoch ended at a step boundary, because a worker had joined";
          clear_epoch();
          return settle();
        }
        if (due) {
          break_epoch(fmt::format("not all members came to the step boundary within {:.1f} s",
                                  seconds(s_.settings.rejoin_wait)));
          return settle();
        }
        break;
      case Phase::kClosing:
        if (due || std::ranges::all_of(s_.roster, &Place::finished)) close();
        break;
      case Phase::kClosed:
        break;
    }
  }

  void give_up_absent() {
    const std::string reason =
        fmt::format("did not come back within {:.1f} s of the coordinator's restart",
                    seconds(s_.settings.reunion_wait));
    std::string seats;
    for (const Place& place : s_.roster) {
      if (place.present || place.finished) continue;
      act(Lost{place.peer.who, s_.latest, LossKind::kHeartbeatsMissed, reason});
      if (seats.empty()) seats = to_string(place.peer.who.seat);
    }
    break_epoch(fmt::format("{} {}", seats, reason));
  }

  State& s_;
  const MonotonicTime now_;
  Actions actions_;
};

}  // namespace

Actions step(State& state, const Event& event, MonotonicTime now) {
  Step one(state, now);
  std::visit(one, event);
  return one.take();
}

}  // namespace tilewright::rendezvous
