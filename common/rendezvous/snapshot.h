// A copy of a job's membership for the coordinator's owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {

struct MemberView {
  MemberId who;
  MemberState state = MemberState::kWaiting;
  bool connected = true;   // false: its connection broke; it stays in its epoch for a moment
  int rank = -1;           // in the current epoch; -1: not in it
  bool lacks_isa = false;  // it waits, because it cannot use the job's instruction set
  MonotonicTime last_seen;
  Progress progress;  // of the last heartbeat in the current epoch
};

struct Loss {
  std::uint64_t number = 0;  // 1, 2, ... over the life of the coordinator
  MemberLost lost;
  WallTime when;  // to compare with the times of pods and processes
};

struct Snapshot {
  Phase phase = Phase::kGathering;
  Epoch latest_epoch = 0;  // the highest epoch so far: the owner stores it as the next last_epoch
  Epoch epoch = 0;         // the current one; 0: none
  int world = 0;           // of the current epoch
  std::string isa;         // of the latest epoch; empty: no epoch yet
  std::vector<MemberView> members;  // by process
  // The last progress of rank 0 in any epoch with total_steps > 0; kept after the job's end.
  std::optional<Progress> progress;
  std::vector<Loss> losses;  // the last kKeptLosses
  std::uint64_t loss_count = 0;
  std::uint64_t disconnections = 0;  // of members of an epoch, which may have reconnected
};
inline constexpr std::size_t kKeptLosses = 64;

}  // namespace tilewright::rendezvous
