#include "common/rendezvous/membership.h"

#include <algorithm>

#include "common/base/check.h"

namespace tilewright::rendezvous {
namespace {

// The earliest time at which an epoch may form out of those who wait; nullopt: too few wait.
std::optional<MonotonicTime> forming_time(const State& state) {
  int waiting = 0;
  MonotonicTime time = std::max(state.last_join + state.settings.last_call, state.patience_until);
  if (state.formed_before) time = std::max(time, state.started + state.settings.reunion_wait);
  for (const auto& [seat, member] : state.members) {
    if (member.standing == Standing::kWaiting) ++waiting;
    if (member.standing == Standing::kOutstanding)
      time = std::max(time, member.since + state.settings.rejoin_wait);
  }
  if (waiting < state.settings.min_world) return std::nullopt;
  return waiting >= state.settings.expected ? state.last_join : time;
}

}  // namespace

std::optional<MonotonicTime> phase_deadline(const State& state) {
  switch (state.phase) {
    case Phase::kGathering:
      return forming_time(state);
    case Phase::kRebuilding:
      return state.phase_since + state.settings.reunion_wait;
    case Phase::kDraining:
      // Until somebody has come to the boundary, the step takes as long as it takes.
      if (std::ranges::any_of(state.roster, &Place::left))
        return state.first_left + state.settings.rejoin_wait;
      return std::nullopt;
    case Phase::kClosing:
      return state.phase_since + state.settings.close_wait;
    case Phase::kRunning:
    case Phase::kClosed:
      return std::nullopt;
  }
  return std::nullopt;
}

State make_state(const Settings& settings, Epoch floor, MonotonicTime now) {
  TW_CHECK(check(settings).ok(), "{}", check(settings).error().message);
  State state;
  state.settings = settings;
  state.started = state.phase_since = now;
  state.latest = floor;
  state.over = floor == 0 ? 0 : floor - 1;
  state.formed_before = floor > 0;
  return state;
}

std::optional<MonotonicTime> next_deadline(const State& state) {
  std::optional<MonotonicTime> next = phase_deadline(state);
  for (const auto& [seat, member] : state.members) {
    const MonotonicTime time = member.last_seen + state.settings.heartbeat_timeout;
    if (!next || time < *next) next = time;
  }
  return next;
}

Assignment assignment_of(const State& state, int rank) {
  Assignment assignment;
  assignment.epoch = state.latest;
  assignment.rank = rank;
  assignment.world = static_cast<int>(state.roster.size());
  assignment.resume_step = state.resume_step;
  assignment.local_world = 0;
  const int index = state.roster.at(static_cast<std::size_t>(rank)).peer.who.seat.index;
  for (int i = 0; i < assignment.world; ++i) {
    const Peer& peer = state.roster[static_cast<std::size_t>(i)].peer;
    assignment.peers.push_back(peer);
    if (peer.who.seat.index != index) continue;
    if (i < rank) ++assignment.local_rank;
    ++assignment.local_world;
  }
  return assignment;
}

}  // namespace tilewright::rendezvous
