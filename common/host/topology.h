// The CPUs of a machine: cores, packages and NUMA nodes.
#pragma once

#include <filesystem>
#include <vector>

namespace tilewright::host {

struct Cpu {
  int id = 0;
  // The lowest CPU of its core: CPUs with the same core are hyper-threads (SMT siblings).
  int core = 0;
  int package = 0;
  int node = 0;  // NUMA node

  bool operator==(const Cpu&) const = default;
};

struct Topology {
  std::vector<Cpu> cpus;          // ascending ids; the online CPUs
  std::vector<int> memory_nodes;  // NUMA nodes with memory, ascending

  const Cpu* find(int id) const;  // nullptr: not online
  bool has_memory(int node) const;
};

// Reads sys/devices/system/{cpu,node} below `root`. CPUs whose siblings are not described are cores
// of their own. If the nodes do not describe each online CPU once, all CPUs are in one node 0. The
// CPUs in `allowed` are in the result even if the system does not describe them.
Topology read_topology(const std::vector<int>& allowed, const std::filesystem::path& root = "/");

}  // namespace tilewright::host
