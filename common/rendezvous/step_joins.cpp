// Who comes: admission, incarnations, members of epochs that this coordinator does not know.
#include <fmt/format.h>

#include <algorithm>

#include "common/rendezvous/step_impl.h"

namespace tilewright::rendezvous {
namespace {

// Replaced incarnations that are remembered; each costs its seat a restart, so a job has few.
constexpr std::size_t kMaxFenced = 1024;

std::string other_isa(const Seat& seat, const std::string& isa, const std::string& jobs) {
  return fmt::format(
      "{} computes with the instruction set {}, the job with {}: all workers of a job must use "
      "the same one (see TILEWRIGHT_ISA)",
      to_string(seat), isa, jobs);
}

}  // namespace

Member& Step::enter(const Join& join, Standing standing) {
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

bool Step::admit(const Join& join) {
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

bool Step::refuse_other_isa(const Join& join) {
  for (const auto& [seat, other] : s_.members) {
    if (seat == join.who.seat || other.isa == join.isa) continue;
    refuse(join.who,
           other_isa(join.who.seat, join.isa, fmt::format("{} ({})", other.isa, to_string(seat))));
    return true;
  }
  return false;
}

bool Step::takes_over(const Join& join) const {
  return join.holding && join.holding->epoch > s_.over &&
         join.holding->epoch >= s_.latest + (s_.current() ? 1 : 0);
}

void Step::replace_older(const MemberId& who) {
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
  act(Lost{old, s_.latest, rank_of(*place), LossKind::kReplaced, "replaced by a newer process"});
  break_epoch(fmt::format("{} was replaced by a newer process", to_string(old.seat)));
}

void Step::fence(const MemberId& who) {
  if (s_.fenced.size() >= kMaxFenced) s_.fenced.pop_front();
  s_.fenced.push_back(who);
}

void Step::hear_of(Epoch epoch, const MemberId& who) {
  if (s_.current())
    break_epoch(fmt::format("{} comes from the later epoch {}", to_string(who.seat), epoch));
  s_.latest = s_.over = epoch;
}

void Step::assign_again(const Join& join, Place& place) {
  if (place.left || place.finished) return;
  send_assignment(place);
  if (place.present) return;
  place.present = true;
  enter(join, Standing::kInEpoch).last_rank = rank_of(place);
  settle();
}

void Step::rejoin(const Join& join, Place& place) {
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

void Step::claim(const Join& join) {
  const Assignment& held = *join.holding;
  Place* place = find_place(join.who);
  if (held.epoch <= s_.over || held.epoch < s_.latest) return turn_out(join);
  const bool current = s_.current() && held.epoch == s_.latest;
  // The bounds may have changed since the current epoch formed.
  const bool fits =
      current || (held.world >= s_.settings.min_world && held.world <= s_.settings.max_world);
  const bool sound = held.world == static_cast<int>(held.peers.size()) && held.rank >= 0 &&
                     held.rank < held.world && fits &&
                     held.peers[static_cast<std::size_t>(held.rank)].who == join.who;
  const bool disagrees = current && !same_roster(held.peers);
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
  enter(join, place->finished ? Standing::kFinished : Standing::kInEpoch).last_rank =
      rank_of(*place);
  if (s_.phase == Phase::kDraining) act(AskReform{join.who, s_.latest, kNewcomer});
}

bool Step::same_roster(const std::vector<Peer>& peers) const {
  return std::ranges::equal(s_.roster, peers, {}, &Place::peer);
}

void Step::turn_out(const Join& join) {
  if (refuse_other_isa(join)) return;
  end_epoch(join.who, join.holding->epoch);
  if (find_member(join.who) == nullptr) enter(join, Standing::kOutstanding);
}

void Step::take_up(const Join& join) {
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
  for (const Place& place : s_.roster) {
    const Peer& peer = place.peer;
    const auto seated = s_.members.find(peer.who.seat);
    const bool superseded = seated != s_.members.end() && seated->second.who != peer.who;
    const bool fenced = std::ranges::find(s_.fenced, peer.who) != s_.fenced.end();
    if (!superseded && !fenced) continue;
    if (superseded && !fenced) fence(peer.who);
    act(Lost{peer.who, held.epoch, rank_of(place), LossKind::kReplaced,
             "replaced by a newer process"});
    break_epoch(fmt::format("{} was replaced by a newer process", to_string(peer.who.seat)));
    return;
  }
}

}  // namespace tilewright::rendezvous
