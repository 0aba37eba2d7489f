// What this process may use of its machine's CPUs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/host/topology.h"

namespace tilewright::host {

struct Host {
  Topology topology;
  std::vector<int> allowed;     // the affinity mask, ascending; not empty, all in `topology`
  std::optional<double> quota;  // of the cgroups, in CPUs
};

// The affinity mask of the calling thread. One CPU, 0, if the system does not tell it.
std::vector<int> allowed_cpus();

// With the CPU quota and the topology of `root`, which replaces / in the paths of /proc and /sys.
Host read_host(std::vector<int> allowed, const std::filesystem::path& root = "/");

// The calling thread's.
Host this_host();

// As hostname(1); "localhost" if the system does not tell it.
std::string host_name();

}  // namespace tilewright::host
