// Environment variables of PyTorch and its libraries that have no effect on a native training. The
// worker names those that are set, so that none is ignored in silence. docs/reference.md is
// generated from this table.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

struct UnneededVariables {
  // "KMP_*": all names with this prefix. A name of environment.h has the effect that stands there.
  std::array<std::string_view, 6> names;  // the last ones may be empty
  std::string_view reason;
};

inline constexpr UnneededVariables kUnneededVariables[] = {
    {{"KMP_*", "GOMP_*", "OMP_*"},
     "the worker has no OpenMP runtime: it runs one thread on each physical core that it may use"},
    {{"CCL_*", "I_MPI_*", "FI_*"},
     "the gradients are exchanged by the worker itself, on its own threads; it uses the CPUs to "
     "which mpiexec has bound it"},
    {{"NCCL_*", "GLOO_*", "TORCH_*", "PYTORCH_*"}, "the worker has no PyTorch"},
    {{"LD_PRELOAD", "MALLOC_CONF"},
     "a training allocates its memory at its start and has no OpenMP runtime, so another allocator "
     "or runtime changes nothing"},
    {{"DNNL_*", "ONEDNN_*", "TF_ENABLE_ONEDNN_OPTS"},
     "the worker has its own kernels; only --gemm_backend=onednn uses oneDNN, which then reads its "
     "variables"},
    {{"IPEX_*"}, "the worker has its own kernels instead of Intel Extension for PyTorch"},
    {{"HF_*", "TRANSFORMERS_*", "TOKENIZERS_PARALLELISM"},
     "the worker has its own client of the hub and its own tokenizer"},
    {{"PET_*"},
     "torchrun's flags; the operator or the agent that started this process has applied them"},
};

// A line for each reason that applies to `environment` (NULL-terminated, NAME=value, as environ):
// "CCL_WORKER_COUNT, I_MPI_PIN_DOMAIN: not used, because ...". LD_PRELOAD only if it names an
// allocator or OpenMP runtime: ld.so has loaded it.
std::vector<std::string> describe_unneeded_variables(const char* const* environment);

}  // namespace tilewright
