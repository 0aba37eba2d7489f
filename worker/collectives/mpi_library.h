// Loads the plugin through which processes that Open MPI's mpirun started exchange gradients with
// --ddp_backend=mpi.
#pragma once

#include <filesystem>

#include "worker/collectives/mpi_port.h"

namespace tilewright::collectives {

// ../lib/tilewright/tilewright-mpi.so, relative to the program.
std::filesystem::path mpi_plugin_path();

// Loads the plugin and the MPI library and initialises MPI, which waits for all ranks. Throws
// Failure(kUsage): the plugin or the library is missing or unfit, or MPI has other ranks than
// `rank` of `world`.
MpiPort& load_mpi(const std::filesystem::path& plugin, int rank, int world);

}  // namespace tilewright::collectives
