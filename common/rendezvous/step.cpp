// The transitions of membership.h's drawing, event by event.
#include <fmt/format.h>

#include <algorithm>

#include "common/rendezvous/step_impl.h"

namespace tilewright::rendezvous {

void Step::operator()(const Join& join) {
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

void Step::operator()(const Heartbeat& beat) {
  Member* member = find_member(beat.who);
  if (member == nullptr || refuse_stale(*member, beat.epoch)) return;
  member->last_seen = now_;
  if (beat.epoch == 0) return;
  member->progress = beat.progress;
  member->last_checkpoint_step =
      std::max(member->last_checkpoint_step, beat.progress.last_checkpoint_step);
}

void Step::operator()(const Finished& finished) {
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

void Step::operator()(const Leave& leave) {
  Member* member = find_member(leave.who);
  if (member == nullptr || refuse_stale(*member, leave.epoch)) return;
  lose(*member, LossKind::kLeft, leave.reason);
  settle();
}

void Step::operator()(const ConnectionClosed& closed) {
  Member* member = find_member(closed.who);
  if (member == nullptr) return;
  lose(*member, LossKind::kConnectionClosed, closed.reason);
  settle();
}

void Step::operator()(const Expect& expect) {
  Settings& settings = s_.settings;
  settings.min_world = std::clamp(expect.min_world, 1, kMaxWorld);
  settings.max_world = std::clamp(expect.max_world, settings.min_world, kMaxWorld);
  settings.expected = std::clamp(expect.expected, settings.min_world, settings.max_world);
  s_.patience_until = now_ + std::max(expect.patience, Duration::zero());
  settle();
}

void Step::operator()(const Tick&) {
  std::vector<MemberId> silent;
  for (const auto& [seat, member] : s_.members) {
    if (now_ - member.last_seen >= s_.settings.heartbeat_timeout) silent.push_back(member.who);
  }
  for (const MemberId& who : silent) {
    act(Drop{who});
    lose(s_.members.at(who.seat), LossKind::kHeartbeatsMissed,
         fmt::format("no heartbeat for {:.1f} s", in_seconds(s_.settings.heartbeat_timeout)));
  }
  settle();
}

Member* Step::find_member(const MemberId& who) {
  const auto found = s_.members.find(who.seat);
  return found != s_.members.end() && found->second.who == who ? &found->second : nullptr;
}

Place* Step::find_place(const MemberId& who) {
  const auto found =
      std::ranges::find_if(s_.roster, [&](const Place& place) { return place.peer.who == who; });
  return found == s_.roster.end() ? nullptr : &*found;
}

Epoch Step::own_epoch(const Member& member) {
  const bool inside =
      member.standing == Standing::kInEpoch || member.standing == Standing::kFinished;
  return inside && find_place(member.who) != nullptr ? s_.latest : 0;
}

bool Step::refuse_stale(const Member& member, Epoch epoch) {
  if (epoch == own_epoch(member)) return false;
  if (epoch != 0) end_epoch(member.who, epoch);
  return true;
}

void Step::end_epoch(const MemberId& who, Epoch epoch) {
  const bool finished = s_.phase == Phase::kClosing || s_.phase == Phase::kClosed;
  std::string reason = finished ? kJobHasFinished : s_.last_end;
  if (reason.empty()) reason = fmt::format("epoch {} is not the current one", epoch);
  act(EndEpoch{who, epoch, std::move(reason), finished});
}

void Step::refuse(const MemberId& who, std::string sentence, bool finished) {
  act(Refuse{who, std::move(sentence), finished});
}

void Step::stand(Member& member, Standing standing) {
  if (member.standing == standing) return;
  member.standing = standing;
  member.since = now_;
}

Actions step(State& state, const Event& event, MonotonicTime now) {
  Step one(state, now);
  std::visit(one, event);
  return one.take();
}

}  // namespace tilewright::rendezvous
