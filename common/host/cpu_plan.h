// Divides the CPUs that may be used among the processes of a training. All programs that start
// worker processes, and the worker itself, use this plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/host/host.h"

namespace tilewright::host {

// The CPUs of one process.
struct ProcessPlan {
  std::vector<int> cpus;         // its affinity mask, ascending
  int threads = 1;               // compute threads: at most one per core
  int max_threads = 1;           // if the user chooses their number: its CPUs or share of the quota
  std::vector<int> thread_cpus;  // of each compute thread; empty: threads are not bound
  std::vector<int> memory_nodes;  // see prefer_memory(); empty: the kernel chooses
};

struct CpuPlan {
  std::vector<ProcessPlan> processes;  // by local rank; not empty
  std::vector<std::string> reasons;    // sentences

  // A process with a local rank that is too large shares the CPUs of another.
  const ProcessPlan& of(int local_rank) const;
};

// The plan for `processes` processes; nullopt: one per NUMA node, or fewer if the allowed CPUs are
// unevenly divided over the nodes or the quota is below their cores. It depends on nothing else, so
// processes that have the same affinity mask agree on their parts.
//
// - A core is never divided: hyper-threads share its multiply units, so it has one compute thread.
// - With at least as many processes as nodes, no process has cores of two nodes; with fewer, each
//   has whole nodes if their numbers permit it.
// - With a quota below the number of cores, other programs are expected on the same CPUs, as in a
//   pod without exclusive CPUs: processes have whole nodes, and the kernel moves their threads.
// - With fewer cores than processes they share all CPUs.
CpuPlan plan_cpus(const Host& host, std::optional<int> processes);

}  // namespace tilewright::host
