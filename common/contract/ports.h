// TCP ports. The table in docs/reference.md is generated from this one.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/contract/table.h"

namespace tilewright {

struct Port {
  std::string_view name;  // identifies the row
  std::uint16_t number;
  std::string_view container_port;  // name of the port in its pod; empty: not a pod's port
  std::string_view listener;
  std::string_view purpose;
};

inline constexpr Port kPorts[] = {
    {"rendezvous", 29400, "rendezvous", "controller",
     "Rendezvous of all jobs. torchrun's default for c10d."},
    {"tcpstore", 29401, "tcpstore", "controller",
     "TCPStores through which torchrun's agents of PyTorchJobs rendezvous."},
    {"transport", 29500, "transport", "worker",
     "Gradients and state between workers; process n of a pod uses the port plus n. MASTER_PORT's "
     "default."},
    {"worker metrics", 9400, "metrics", "worker", "`/metrics` of a worker."},
    {"controller metrics", 8080, "metrics", "controller", "`/metrics` of the controller."},
    {"controller health", 8081, "health", "controller", "`/healthz` and `/readyz`."},
};

inline constexpr std::uint16_t kRendezvousPort = find_row(kPorts, "rendezvous").number;
inline constexpr std::uint16_t kTcpStorePort = find_row(kPorts, "tcpstore").number;
inline constexpr std::uint16_t kTransportPort = find_row(kPorts, "transport").number;
inline constexpr std::uint16_t kWorkerMetricsPort = find_row(kPorts, "worker metrics").number;
inline constexpr std::uint16_t kControllerMetricsPort =
    find_row(kPorts, "controller metrics").number;
inline constexpr std::uint16_t kControllerHealthPort = find_row(kPorts, "controller health").number;

inline constexpr const char* kTransportPortName =
    find_row(kPorts, "transport").container_port.data();
inline constexpr const char* kMetricsPortName =
    find_row(kPorts, "worker metrics").container_port.data();

}  // namespace tilewright
