// Types of membership: a member's identity, assignment and progress; settings.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/contract/virtual_shards.h"

namespace tilewright::rendezvous {

// Bounds of received values.
inline constexpr int kMaxWorkerIndex = 65535;
inline constexpr int kMaxLocalRank = 1023;
inline constexpr int kMaxWorld = kMaxVirtualShards;  // processes of one job
inline constexpr std::uint64_t kMaxEpoch = 1ULL << 48;
// How far a member's report may exceed the epoch that the coordinator's owner has stored: epochs
// that formed after the owner last stored one. A million is one epoch per second for twelve days.
inline constexpr std::uint64_t kMaxUnstoredEpochs = 1 << 20;
// Of the owner's number. Leaves more numbers below kMaxEpoch than a coordinator can assign.
inline constexpr std::uint64_t kMaxStoredEpoch = kMaxEpoch / 2;
inline constexpr std::size_t kMaxIsas = 16;     // entries of Join::isas
inline constexpr std::size_t kMaxMetrics = 64;  // entries of Progress::metrics

using Epoch = std::uint64_t;  // 0: none

// A process of the job: the worker's index and the process in that worker (torchrun's LOCAL_RANK).
struct WorkerProcess {
  int worker_index = 0;
  int local_rank = 0;
  auto operator<=>(const WorkerProcess&) const =
      default;  // NOLINT: clang-tidy 14 sees a null pointer
};
// "worker 1", or "worker 1 (process 2)" for a local rank other than 0.
std::string to_string(const WorkerProcess& process);

// One run of a process. A restarted process has a new random instance_id.
struct MemberId {
  WorkerProcess process;
  std::uint64_t instance_id = 0;
  auto operator<=>(const MemberId&) const = default;  // NOLINT: as above
};

// A member as seen by the others of its epoch.
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
  int local_world = 1;  // number of the epoch's members of the same worker
  // The step of the latest checkpoint that the job has reported; -1: none. Rank 0 resumes from this
  // one or a later one.
  std::int64_t resume_step = -1;
  std::vector<Peer> peers;  // by rank, `world` entries; empty in a single process
  std::string isa = {};     // instruction set whose kernels all members use
  bool operator==(const Assignment&) const = default;
};

// A process that stays slower than the others.
struct SlowWorker {
  WorkerProcess process;
  double slowdown = 1;  // time per FLOP, divided by the median of the others
  int shards = 0;       // virtual shards that it computes; 0: the training is not exact
  bool operator==(const SlowWorker&) const = default;
};

// What a member reports with each heartbeat. Numbers that are not finite are sent as null.
struct Progress {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch_of_data = 0;  // 1.5: halfway through the second epoch
  double loss = 0;
  double learning_rate = 0;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  std::int64_t last_checkpoint_step = -1;
  std::string phase;  // "training", "evaluating", ...
  std::map<std::string, double> metrics;
  std::vector<SlowWorker> slow_workers = {};  // by rank; the same on all members
  bool operator==(const Progress&) const = default;
};

inline constexpr Duration kMaxSettingDuration = std::chrono::hours(24);

struct Settings {
  // Whether all epochs use the instruction set of the first one, as bitwise equal results need.
  // Otherwise each epoch uses the fastest one that its members have in common.
  bool exact = true;
  int min_world = 1;  // processes
  int max_world = 1;
  int expected = 1;  // with this many members an epoch forms immediately
  // How long after the last join an epoch with fewer than `expected` members waits for another
  // join.
  Duration join_quiet_period = std::chrono::seconds(3);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // How long a member whose connection broke stays in its epoch, which ends for all if the member
  // does not reconnect. Longer than the longest pause between a client's attempts (2 s).
  Duration reconnect_timeout = std::chrono::seconds(3);
  // How long an epoch waits for a survivor of the previous one that has not joined again.
  Duration rejoin_timeout = std::chrono::seconds(30);
  // After a restart of the coordinator: how long it waits for the members of the running epoch.
  Duration recovery_timeout = std::chrono::seconds(10);
  // After rank 0 has finished: how long the others may still take.
  Duration close_timeout = std::chrono::seconds(30);
  bool operator==(const Settings&) const = default;
};
// An Error (kUsage) that names the setting.
Status check(const Settings& settings);

enum class Phase { kGathering, kRebuilding, kRunning, kDraining, kClosing, kClosed };
const char* to_string(Phase phase);

enum class LossKind { kConnectionClosed, kHeartbeatsMissed, kLeft, kReplaced };
const char* to_string(LossKind kind);

}  // namespace tilewright::rendezvous
