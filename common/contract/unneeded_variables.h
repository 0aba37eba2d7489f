// Environment variables of PyTorch and its libraries that have no effect on a native training. The
// worker logs those that are set; `tilewright convert` leaves them out. docs/reference.md is
// generated from this table.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

struct UnneededVariables {
  // "KMP_*": all names with this prefix. Names in environment.h are exempt.
  std::array<std::string_view, 6> names;  // the last ones may be empty
  std::string_view reason;
  // Without effect in a TrainJob only. Elsewhere a launcher or an image sets them for its own use,
  // so the worker does not log them.
  bool only_in_job = false;
};

inline constexpr UnneededVariables kUnneededVariables[] = {
    {{"KMP_*", "GOMP_*", "OMP_*"},
     "only oneDNN uses OpenMP, with --gemm_backend=onednn; the worker runs one thread on each "
     "physical core that it may use"},
    {{"CCL_*", "I_MPI_*", "FI_*"},
     "the worker exchanges gradients itself, on its own threads; under mpiexec it uses the CPUs to "
     "which mpiexec has bound it"},
    {{"NCCL_*", "GLOO_*", "TORCH_*", "PYTORCH_*"}, "the worker has no PyTorch"},
    {{"LD_PRELOAD", "MALLOC_CONF"},
     "the worker allocates its memory at the start and uses no OpenMP, so another allocator or "
     "runtime has no effect"},
    {{"DNNL_*", "ONEDNN_*", "TF_ENABLE_ONEDNN_OPTS"},
     "the worker has its own kernels; only --gemm_backend=onednn uses oneDNN, which then reads its "
     "variables"},
    {{"IPEX_*"}, "the worker has its own kernels instead of Intel Extension for PyTorch"},
    {{"HF_*", "TRANSFORMERS_*", "TOKENIZERS_PARALLELISM"},
     "the worker has its own client of the hub and its own tokenizer"},
    {{"PET_*"},
     "torchrun's flags; the operator or the agent that started this process has applied them"},
    {{"TORCHELASTIC_*"}, "the operator starts the processes, not torchrun", true},
    {{"OMPI_*", "PMI_*", "PMIX_*", "MPI_*"}, "no MPI runs in a TrainJob", true},
    {{"MALLOC_*", "TCMALLOC_*"}, "the worker image has no such allocator", true},
    {{"MKL_*", "ATEN_*"}, "the kernels are chosen by the CPU's instruction set", true},
    {{"PYTHON*", "TORCHDYNAMO_*", "TORCHINDUCTOR_*"}, "no Python runs", true},
    {{"CUDA_*", "NVIDIA_*"}, "Tilewright computes on CPUs only", true},
};

// Why the variable has no effect in a TrainJob; empty if it has one or is unknown.
std::string_view why_unneeded_in_job(std::string_view variable);

// A line for each reason that applies to `environment` (NULL-terminated, NAME=value, as environ):
// "CCL_WORKER_COUNT, I_MPI_PIN_DOMAIN: not used, because ...". LD_PRELOAD only if it names an
// allocator or OpenMP runtime: ld.so has loaded it.
std::vector<std::string> describe_unneeded_variables(const char* const* environment);

}  // namespace tilewright
