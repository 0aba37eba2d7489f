// What a coordinator shows of a job's membership: plain values, for whoever decides what is next.
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
  Standing standing = Standing::kWaiting;
  int rank = -1;  // in the current epoch; -1: not in it
  std::string address;
  std::string isa;
  MonotonicTime last_seen;
  Progress progress;  // of the last heartbeat in the current epoch
};

struct Loss {
  std::uint64_t number = 0;  // 1, 2, ... over the life of the coordinator
  Lost lost;
  WallTime when;  // to be held beside what others say of the process' beginning and end
};

struct Snapshot {
  std::string uid;
  Phase phase = Phase::kGathering;
  Epoch latest = 0;  // the highest epoch so far: to be kept by the owner as the next floor
  Epoch epoch = 0;   // the current one; 0: none
  int world = 0;     // of the current epoch
  int expected = 0;
  std::string last_end;             // why the last epoch ended
  std::vector<MemberView> members;  // connected ones, by seat
  // What rank 0 said last, in whatever epoch, once it had steps to tell of; kept to the end and
  // after it.
  std::optional<Progress> progress;
  std::vector<Loss> losses;  // the last kKeptLosses
  std::uint64_t number_of_losses = 0;
  std::uint64_t refused = 0;
};
inline constexpr std::size_t kKeptLosses = 64;

}  // namespace tilewright::rendezvous
