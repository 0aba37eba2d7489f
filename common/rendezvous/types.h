// The words of membership: who a member is, what an epoch gives it, what it reports.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace tilewright::rendezvous {

// Bounds of everything that comes from a socket.
inline constexpr int kMaxIndex = 65535;  // worker index
inline constexpr int kMaxSlot = 1023;    // process of one worker
inline constexpr int kMaxWorld =
    1024;  // processes of one job: kMaxVirtualShards has room for no more
inline constexpr std::uint64_t kMaxEpoch = 1ULL << 48;
inline constexpr std::size_t kMaxMetrics = 64;  // entries of Progress::metrics

using Epoch = std::uint64_t;  // 0: none

// A place in the job: the worker's index and the process in that worker (torchrun's LOCAL_RANK).
struct Seat {
  int index = 0;
  int slot = 0;
  auto operator<=>(const Seat&) const = default;  // NOLINT: clang-tidy 14 sees a null pointer
};
// "worker 1", or "worker 1 (process 2)" for a slot other than 0.
std::string to_string(const Seat& seat);

// One life of the process in a seat. A restarted process takes a new incarnation, at random.
struct MemberId {
  Seat seat;
  std::uint64_t incarnation = 0;
  auto operator<=>(const MemberId&) const = default;  // NOLINT: as above
};

// A member as the others of its epoch know it; peers stand in the order of their ranks.
struct Peer {
  MemberId who;
  std::string address;  // host:port of its transport
  bool operator==(const Peer&) const = default;
};

struct Assignment {
  Epoch epoch = 0;
  int rank = 0;
  int world = 1;
  int local_rank = 0;   // among the epoch's members of the same worker, without gaps
  int local_world = 1;  // how many these are
  // The latest checkpoint that any member knows of; -1: none.
  std::int64_t resume_step = -1;
  std::vector<Peer> peers;  // world of them, or none in a single process
  bool operator==(const Assignment&) const = default;
};

// What a member reports with each heartbeat. Numbers that are not finite travel as null.
struct Progress {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch_of_data = 0;  // 1.5: halfway through the second pass over the data
  double loss = 0;
  double learning_rate = 0;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  std::int64_t last_checkpoint_step = -1;
  std::string phase;  // "training", "evaluating", ...: for people
  std::map<std::string, double> metrics;
  bool operator==(const Progress&) const = default;
};

// Whether a newcomer makes a running epoch end.
enum class Growth {
  kAtBoundary,   // the running epoch is asked to end at a step boundary
  kAtNextEpoch,  // the newcomer waits until the epoch ends for another reason
};

struct Settings {
  int min_world = 1;  // processes
  int max_world = 1;
  int expected = 1;  // so many form an epoch at once
  Growth growth = Growth::kAtBoundary;
  // With fewer than expected: how long after the last join an epoch waits for one more.
  Duration last_call = std::chrono::seconds(3);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // How long an epoch waits for a survivor of the one before that has not come back yet.
  Duration rejoin_wait = std::chrono::seconds(30);
  // After a restart of the coordinator: how long it waits for the members of a running epoch.
  Duration reunion_wait = std::chrono::seconds(10);
  // After rank 0 has finished: how long the others may take.
  Duration close_wait = std::chrono::seconds(30);
  bool operator==(const Settings&) const = default;
};
// An Error (kUsage) that names the setting.
Status check(const Settings& settings);

enum class Phase { kGathering, kRebuilding, kRunning, kDraining, kClosing, kClosed };
const char* to_string(Phase phase);

enum class LossKind { kConnectionClosed, kHeartbeatsMissed, kLeft, kReplaced };
const char* to_string(LossKind kind);

}  // namespace tilewright::rendezvous
