// Detects the launcher that started this process as one of several: Hydra's mpiexec (MPICH, Intel
// MPI), Open MPI's mpirun, srun, or variables as torch.distributed reads them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "worker/elastic/session.h"

namespace tilewright::elastic {

// How the processes of a launcher exchange short texts.
enum class KeyValueSpace {
  kNone,  // not at all: MASTER_ADDR names the host of rank 0
  kPmi1,  // the text protocol on the descriptor PMI_FD
  kPmix,  // libpmix.so.2
};

// A process of a run that a launcher started.
struct LaunchedProcess {
  std::string launcher;  // for messages: "Hydra", "PMI", "Open MPI", "srun", "the environment"
  KeyValueSpace space = KeyValueSpace::kNone;
  int rank = 0;
  int world = 2;
  int local_rank = 0;
  int local_world = 0;  // processes on this host; 0: unknown
  std::string job;      // names the run among those of this user on this host
  bool on_one_host() const { return local_world == world; }
};

// nullopt: the environment names a rendezvous, or this is the only process. Throws Failure(kUsage),
// with the variable, for a value that is out of bounds, and if several processes cannot form one
// job: torchrun's, or processes without a rank.
std::optional<LaunchedProcess> detect_launcher(const GetVariable& environment);

// "2(x3),1" on host 3: 1. nullopt if the text has another form or fewer hosts. Slurm's variables
// SLURM_STEP_TASKS_PER_NODE and SLURM_TASKS_PER_NODE have this form.
std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node);

// The CPUs of this process and of the launcher's daemon on this host, its nearest ancestor with a
// known name or else its parent.
struct CpuBinding {
  int own = 0;     // allowed CPUs; 0: unknown
  int daemon = 0;  // allowed CPUs of the daemon
  // The launcher has bound this process, so that its CPUs are not shared with other ranks.
  bool bound() const { return 0 < own && own < daemon; }
};
CpuBinding read_cpu_binding(const std::filesystem::path& proc = "/proc");

}  // namespace tilewright::elastic
