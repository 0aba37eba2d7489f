// TCP ports and paths inside a pod that both programs agree on.
#pragma once

#include <cstdint>

namespace tilewright {

inline constexpr std::uint16_t kRendezvousPort = 29400;    // torchrun's default for c10d
inline constexpr std::uint16_t kTransportPort = 29500;     // between workers; MASTER_PORT's default
inline constexpr std::uint16_t kWorkerMetricsPort = 9400;  // /metrics of a worker
inline constexpr std::uint16_t kControllerMetricsPort = 8080;  // /metrics of the controller
inline constexpr std::uint16_t kControllerHealthPort = 8081;   // /healthz and /readyz

inline constexpr const char* kTransportPortName = "transport";
inline constexpr const char* kMetricsPortName = "metrics";

// VOLUME:relative/path of a manifest is kVolumeRoot/VOLUME/relative/path in a pod.
inline constexpr const char* kVolumeRoot = "/mnt/tilewright";
// The job's secret is mounted here; the file holds kJobKeyBytes random bytes in hexadecimal.
inline constexpr const char* kJobKeyFolder = "/var/run/tilewright";
inline constexpr const char* kJobKeyName = "job-key";
inline constexpr const char* kJobKeyPath = "/var/run/tilewright/job-key";
inline constexpr int kJobKeyBytes = 32;

inline constexpr const char* kWorkerProgram = "tilewright-worker";

}  // namespace tilewright
