#include "common/rendezvous/types.h"

#include <fmt/format.h>

#include "common/base/clock.h"

namespace tilewright::rendezvous {

std::string to_string(const WorkerProcess& process) {
  if (process.local_rank == 0) return fmt::format("worker {}", process.worker_index);
  return fmt::format("worker {} (process {})", process.worker_index, process.local_rank);
}

Status check(const Settings& s) {
  const auto refuse = [](std::string message) {
    return Status(Error{ExitCode::kUsage, std::move(message)});
  };
  if (s.min_world < 1 || s.min_world > kMaxWorld)
    return refuse(
        fmt::format("rendezvous: min_world is {}, expected 1 to {}", s.min_world, kMaxWorld));
  if (s.max_world < s.min_world || s.max_world > kMaxWorld)
    return refuse(fmt::format("rendezvous: max_world is {}, expected {} (min_world) to {}",
                              s.max_world, s.min_world, kMaxWorld));
  if (s.expected < s.min_world || s.expected > s.max_world)
    return refuse(
        fmt::format("rendezvous: expected is {}, expected {} (min_world) to {} (max_world)",
                    s.expected, s.min_world, s.max_world));
  const std::pair<const char*, Duration> durations[] = {
      {"join_quiet_period", s.join_quiet_period}, {"heartbeat_timeout", s.heartbeat_timeout},
      {"reconnect_timeout", s.reconnect_timeout}, {"rejoin_timeout", s.rejoin_timeout},
      {"recovery_timeout", s.recovery_timeout},   {"close_timeout", s.close_timeout}};
  for (const auto& [name, value] : durations) {
    if (value < Duration::zero() || value > kMaxSettingDuration)
      return refuse(
          fmt::format("rendezvous: {} is {} s, expected 0 to 86400", name, in_seconds(value)));
  }
  if (s.heartbeat_timeout == Duration::zero())
    return refuse("rendezvous: heartbeat_timeout is 0 s, expected more than 0");
  return {};
}

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kRebuilding:
      return "rebuilding";
    case Phase::kRunning:
      return "running";
    case Phase::kDraining:
      return "draining";
    case Phase::kClosing:
      return "closing";
    case Phase::kClosed:
      return "closed";
  }
  return "unknown";
}

const char* to_string(LossKind kind) {
  switch (kind) {
    case LossKind::kConnectionClosed:
      return "connection closed";
    case LossKind::kHeartbeatsMissed:
      return "heartbeats missed";
    case LossKind::kLeft:
      return "left";
    case LossKind::kReplaced:
      return "replaced";
  }
  return "unknown";
}

}  // namespace tilewright::rendezvous
