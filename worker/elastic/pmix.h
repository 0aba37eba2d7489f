// A client of PMIx, which Open MPI's mpirun and `srun --mpi=pmix` serve, through libpmix.so.2. The
// library is loaded when it is needed: processes of other launchers run without it.
// Source: PMIx Standard 4.1, chapters 5 (client), 6 (fence) and 8 (publishing within a job).
#pragma once

#include <memory>

#include "worker/elastic/process_manager.h"

namespace tilewright::elastic {

// Throws Failure(kUsage): the library is missing, or no process manager serves this process.
std::unique_ptr<ProcessManager> connect_pmix(int rank);

}  // namespace tilewright::elastic
