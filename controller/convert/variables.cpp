#include "controller/convert/variables.h"

#include <array>

#include "common/contract/environment.h"
#include "controller/api/command.h"

namespace tilewright::convert {
namespace {

struct Row {
  std::string_view name;  // with '*' at its end, every variable that starts so
  std::string_view reason;
};

constexpr std::string_view kPreload =
    "the worker image has no such libraries; the trainer has its own allocation and threads";
constexpr std::string_view kThreads = "the trainer runs one thread on each core and binds it there";
constexpr std::string_view kTransport = "the workers use Tilewright's own transport, not oneCCL";
constexpr std::string_view kMpi = "no MPI runs in a TrainJob";
constexpr std::string_view kTorchrun = "the operator starts the processes, not torchrun";
constexpr std::string_view kKernels = "the kernels are chosen by the CPU's instruction set";
constexpr std::string_view kPython = "no Python runs";

constexpr std::array kRows = {
    Row{"LD_PRELOAD", kPreload},
    Row{"MALLOC_CONF", kPreload},
    Row{"MALLOC_*", kPreload},
    Row{"TCMALLOC_*", kPreload},
    Row{"KMP_*", kThreads},
    Row{"GOMP_*", kThreads},
    Row{"OMP_PROC_BIND", kThreads},
    Row{"OMP_PLACES", kThreads},
    Row{"OMP_SCHEDULE", kThreads},
    Row{"MKL_NUM_THREADS", kThreads},
    Row{"CCL_*", kTransport},
    Row{"FI_*", kTransport},
    Row{"NCCL_*", kTransport},
    Row{"GLOO_*", kTransport},
    Row{"I_MPI_*", kMpi},
    Row{"OMPI_*", kMpi},
    Row{"PMI_*", kMpi},
    Row{"PET_*", kTorchrun},
    Row{"TORCHELASTIC_*", kTorchrun},
    Row{"MASTER_ADDR", kTorchrun},
    Row{"MASTER_PORT", kTorchrun},
    Row{"WORLD_SIZE", kTorchrun},
    Row{"RANK", kTorchrun},
    Row{"LOCAL_RANK", kTorchrun},
    Row{"LOCAL_WORLD_SIZE", kTorchrun},
    Row{"IPEX_*", kKernels},
    Row{"DNNL_*", kKernels},
    Row{"ONEDNN_*", kKernels},
    Row{"MKL_*", kKernels},
    Row{"ATEN_*", kKernels},
    Row{"TORCH_*", kPython},
    Row{"TORCHDYNAMO_*", kPython},
    Row{"TORCHINDUCTOR_*", kPython},
    Row{"PYTORCH_*", kPython},
    Row{"PYTHON*", kPython},
    Row{"TOKENIZERS_PARALLELISM", kPython},
    Row{"CUDA_*", "Tilewright computes on CPUs only"},
    Row{"NVIDIA_*", "Tilewright computes on CPUs only"},
};

}  // namespace

std::string_view why_not_needed(std::string_view variable) {
  if (variable == env::kGlooSocketIfname || variable == env::kNcclSocketIfname) return "";
  for (const Row& row : kRows) {
    const bool prefix = row.name.ends_with('*');
    if (prefix ? variable.starts_with(row.name.substr(0, row.name.size() - 1))
               : variable == row.name) {
      return row.reason;
    }
  }
  return api::is_runtime_variable(variable) ? "the operator sets it" : "";
}

}  // namespace tilewright::convert
