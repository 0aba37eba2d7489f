#include "common/rendezvous/membership.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tilewright::rendezvous {
namespace {

// The earliest time at which the waiting members may form an epoch; nullopt: too few wait.
std::optional<MonotonicTime> earliest_forming_time(const State& state) {
  int waiting = 0;
  bool survivors = false;
  bool survivors_missing = false;
  MonotonicTime time =
      std::max(state.last_join + state.settings.join_quiet_period, state.wait_for_expected_until);
  if (state.formed_before) time = std::max(time, state.started + state.settings.recovery_timeout);
  for (const auto& [process, member] : state.members) {
    if (member.state == MemberState::kWaiting && !lacks_isa(state, member)) {
      ++waiting;
      survivors = survivors || member.last_rank >= 0;
    }
    if (member.state == MemberState::kNotRejoined) {
      survivors_missing = true;
      time = std::max(time, member.since + state.settings.rejoin_timeout);
    }
  }
  if (waiting < state.settings.min_world) return std::nullopt;
  // Survivors have the state in memory and do not wait for a replacement: it gets the state from
  // them at a later step boundary.
  const bool survivors_wait = survivors && !survivors_missing && !state.formed_before;
  // New members alone wait for the survivors, because only these have the state.
  const bool expected_wait =
      waiting >= state.settings.expected && (survivors || !survivors_missing);
  return expected_wait || survivors_wait ? state.last_join : time;
}

}  // namespace

std::optional<MonotonicTime> phase_deadline(const State& state) {
  switch (state.phase) {
    case Phase::kGathering:
      return earliest_forming_time(state);
    case Phase::kRebuilding:
      return state.phase_started + state.settings.recovery_timeout;
    case Phase::kDraining:
      // No deadline until the first member reaches the boundary: a step may take arbitrarily long.
      if (std::ranges::any_of(state.epoch_members, &EpochMember::rejoined))
        return state.first_rejoin + state.settings.rejoin_timeout;
      return std::nullopt;
    case Phase::kClosing:
      return state.phase_started + state.settings.close_timeout;
    case Phase::kRunning:
    case Phase::kClosed:
      return std::nullopt;
  }
  return std::nullopt;
}

State make_state(const Settings& settings, const Stored& stored, MonotonicTime now) {
  TW_CHECK(check(settings).ok(), "{}", check(settings).error().message);
  State state;
  state.settings = settings;
  state.started = state.phase_started = now;
  state.latest_epoch = stored.last_epoch;
  state.max_reported_epoch = stored.last_epoch + kMaxUnstoredEpochs;
  state.last_ended_epoch = stored.last_epoch == 0 ? 0 : stored.last_epoch - 1;
  state.formed_before = stored.last_epoch > 0;
  state.isa = stored.isa;
  state.last_checkpoint_step = stored.last_checkpoint_step;
  return state;
}

bool lacks_isa(const State& state, const Member& member) {
  return state.settings.exact && !state.isa.empty() &&
         std::ranges::find(member.isas, state.isa) == member.isas.end();
}

MonotonicTime member_deadline(const State& state, const Member& member) {
  return member.disconnected ? member.disconnected->since + state.settings.reconnect_timeout
                             : member.last_seen + state.settings.heartbeat_timeout;
}

std::optional<MonotonicTime> next_deadline(const State& state) {
  std::optional<MonotonicTime> next = phase_deadline(state);
  for (const auto& [process, member] : state.members) {
    const MonotonicTime time = member_deadline(state, member);
    if (!next || time < *next) next = time;
  }
  return next;
}

SharedPeers peers_of(const State& state) {
  std::vector<Peer> peers;
  peers.reserve(state.epoch_members.size());
  for (const EpochMember& epoch_member : state.epoch_members) peers.push_back(epoch_member.peer);
  return std::make_shared<const std::vector<Peer>>(std::move(peers));
}

Assignment assignment_of(const State& state, int rank) {
  Assignment assignment;
  assignment.epoch = state.latest_epoch;
  assignment.rank = rank;
  assignment.world = static_cast<int>(state.epoch_members.size());
  assignment.resume_step = state.resume_step;
  assignment.isa = state.isa;
  assignment.local_world = 0;
  const int index =
      state.epoch_members.at(static_cast<std::size_t>(rank)).peer.who.process.worker_index;
  for (int i = 0; i < assignment.world; ++i) {
    const Peer& peer = state.epoch_members[static_cast<std::size_t>(i)].peer;
    if (peer.who.process.worker_index != index) continue;
    if (i < rank) ++assignment.local_rank;
    ++assignment.local_world;
  }
  return assignment;
}

}  // namespace tilewright::rendezvous
