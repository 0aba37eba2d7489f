#include "worker/collectives/mpi_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "common/base/result.h"

namespace tilewright::collectives {
namespace {

Failure refusal(const std::string& what) {
  return {ExitCode::kUsage,
          fmt::format("--ddp_backend=mpi: {}; --ddp_backend=ccl needs no MPI library and gives the "
                      "same bits",
                      what)};
}

}  // namespace

std::filesystem::path mpi_plugin_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
         "lib/tilewright/tilewright-mpi.so";
}

MpiPort& load_mpi(const std::filesystem::path& plugin, int rank, int world) {
  // RTLD_GLOBAL: Open MPI loads its components with dlopen, and they use symbols of libmpi.
  void* handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    throw refusal(
        fmt::format("{}; expected the plugin of this release and Open MPI 4 (Debian: "
                    "libopenmpi3)",
                    dlerror()));
  }
  const auto open = reinterpret_cast<OpenMpiPort>(dlsym(handle, kOpenMpiPort));
  if (open == nullptr) throw refusal(fmt::format("{} is not Tilewright's plugin", plugin.string()));
  MpiPort* port = nullptr;
  if (const char* problem = open(kMpiPortVersion, &port); problem != nullptr) {
    throw refusal(fmt::format("{}: {}", plugin.string(), problem));
  }
  if (port->rank() != rank || port->world() != world) {
    throw refusal(
        fmt::format("{} counts this process as rank {} of {}, the launcher as rank {} of "
                    "{}; expected Open MPI's own mpirun",
                    port->library(), port->rank(), port->world(), rank, world));
  }
  return *port;
}

}  // namespace tilewright::collectives
