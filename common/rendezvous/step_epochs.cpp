// How epochs begin and end: losses, the phases of the drawing, the end of the job.
#include <fmt/format.h>

#include <algorithm>

#include "common/rendezvous/step_impl.h"

namespace tilewright::rendezvous {

void Step::lose(Member& lost, LossKind kind, const std::string& reason) {
  const Member member = lost;
  const Epoch epoch = own_epoch(member);
  s_.members.erase(member.who.seat);
  if (member.standing == Standing::kFinished) return;  // its process ends after it has finished
  act(Lost{member.who, epoch, member.last_rank, kind, reason});
  if (epoch == 0) return;
  if (s_.phase == Phase::kClosing) {
    find_place(member.who)->finished = true;  // the job is done without it
    return;
  }
  break_epoch(
      fmt::format("{} was lost ({}): {}", to_string(member.who.seat), to_string(kind), reason));
}

void Step::break_epoch(std::string reason) {
  s_.last_end = std::move(reason);
  for (const Place& place : s_.roster) {
    Member* member = find_member(place.peer.who);
    if (member == nullptr || member->standing != Standing::kInEpoch) continue;
    act(EndEpoch{member->who, s_.latest, s_.last_end, false});
    stand(*member, Standing::kOutstanding);
  }
  clear_epoch();
}

void Step::clear_epoch() {
  s_.roster.clear();
  s_.over = s_.latest;
  enter_phase(Phase::kGathering);
}

void Step::enter_phase(Phase phase) {
  s_.phase = phase;
  s_.phase_since = now_;
}

void Step::send_assignment(const Place& place) {
  act(Assign{place.peer.who, assignment_of(s_, rank_of(place))});
}

void Step::form() {
  s_.resume_step = -1;
  for (auto& [seat, member] : s_.members) {
    if (member.standing != Standing::kWaiting) continue;
    if (static_cast<int>(s_.roster.size()) == s_.settings.max_world) break;
    member.last_rank = static_cast<int>(s_.roster.size());
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

void Step::begin_closing() {
  enter_phase(Phase::kClosing);
  std::erase_if(s_.members, [&](const auto& entry) {
    if (own_epoch(entry.second) != 0) return false;
    refuse(entry.second.who, kJobHasFinished, true);
    return true;
  });
  for (Place& place : s_.roster) place.finished = place.finished || place.left;
}

void Step::close() {
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

void Step::ask_reform() {
  enter_phase(Phase::kDraining);
  for (const Place& place : s_.roster) act(AskReform{place.peer.who, s_.latest, kNewcomer});
}

void Step::settle() {
  const auto deadline = phase_deadline(s_);
  const bool due = deadline && now_ >= *deadline;
  switch (s_.phase) {
    case Phase::kGathering:
      if (due) form();
      break;
    case Phase::kRebuilding:
      if (std::ranges::all_of(s_.roster, [](const Place& p) { return p.present || p.finished; })) {
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
                                in_seconds(s_.settings.rejoin_wait)));
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

void Step::give_up_absent() {
  const std::string reason =
      fmt::format("did not come back within {:.1f} s of the coordinator's restart",
                  in_seconds(s_.settings.reunion_wait));
  std::string seats;
  for (const Place& place : s_.roster) {
    if (place.present || place.finished) continue;
    act(Lost{place.peer.who, s_.latest, rank_of(place), LossKind::kHeartbeatsMissed, reason});
    if (seats.empty()) seats = to_string(place.peer.who.seat);
  }
  break_epoch(fmt::format("{} {}", seats, reason));
}

}  // namespace tilewright::rendezvous
