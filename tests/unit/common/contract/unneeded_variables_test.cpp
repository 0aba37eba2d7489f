#include "common/contract/unneeded_variables.h"

#include <gmock/gmock.h>

namespace tilewright {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> lines_for(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return describe_unneeded_variables(environment.data());
}

struct Case {
  const char* entry;
  const char* reason;  // a part of it
};

class UnneededVariable : public ::testing::TestWithParam<Case> {};

TEST_P(UnneededVariable, IsNamedWithItsReason) {
  const std::string entry = GetParam().entry;
  EXPECT_THAT(
      lines_for({"PATH=/bin", GetParam().entry}),
      ElementsAre(AllOf(StartsWith(entry.substr(0, entry.find('=')) + ": not used, because"),
                        HasSubstr(GetParam().reason))));
}

// Each variable of the guides and of issue threads about them that has no effect here.
INSTANTIATE_TEST_SUITE_P(
    All, UnneededVariable,
    ::testing::Values(Case{"KMP_HW_SUBSET=1T", "only oneDNN uses OpenMP"},
                      Case{"KMP_AFFINITY=granularity=fine,compact,1,0", "only oneDNN uses OpenMP"},
                      Case{"KMP_BLOCKTIME=1", "only oneDNN uses OpenMP"},
                      Case{"GOMP_CPU_AFFINITY=0-3", "only oneDNN uses OpenMP"},
                      Case{"OMP_PROC_BIND=true", "only oneDNN uses OpenMP"},
                      Case{"CCL_WORKER_COUNT=1", "exchanges gradients itself"},
                      Case{"CCL_WORKER_AFFINITY=0,1,2,3,32,33,34,35", "exchanges gradients"},
                      Case{"CCL_ATL_TRANSPORT=ofi", "exchanges gradients itself"},
                      Case{"I_MPI_PIN_DOMAIN=[0xfffffff0]", "mpiexec has bound it"},
                      Case{"FI_PROVIDER=tcp", "exchanges gradients itself"},
                      Case{"NCCL_DEBUG=INFO", "no PyTorch"},
                      Case{"TORCH_DISTRIBUTED_DEBUG=INFO", "no PyTorch"},
                      Case{"LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so", "allocator"},
                      Case{"LD_PRELOAD=/usr/lib/libjemalloc.so.2", "allocator"},
                      Case{"LD_PRELOAD=/usr/local/lib/libiomp5.so", "OpenMP"},
                      Case{"MALLOC_CONF=background_thread:true", "allocator"},
                      Case{"TF_ENABLE_ONEDNN_OPTS=1", "own kernels"},
                      Case{"DNNL_PRIMITIVE_CACHE_CAPACITY=1024", "--gemm_backend=onednn"},
                      Case{"ONEDNN_MAX_CPU_ISA=AVX2", "--gemm_backend=onednn"},
                      Case{"IPEX_FP32_MATH_MODE=BF32", "own kernels"},
                      Case{"HF_HUB_ENABLE_HF_TRANSFER=1", "own client of the hub"},
                      Case{"TRANSFORMERS_VERBOSITY=info", "own client of the hub"},
                      Case{"PET_NPROC_PER_NODE=1", "torchrun's flags"}),
    [](const auto& parameter) {
      const std::string entry = parameter.param.entry;
      return entry.substr(0, entry.find('=')) + std::to_string(parameter.index);
    });

TEST(UnneededVariables, OfOneKindShareALine) {
  const auto lines = lines_for({"I_MPI_PIN=1", "KMP_BLOCKTIME=1", "CCL_WORKER_COUNT=1",
                                "KMP_AFFINITY=compact", "CCL_ATL_TRANSPORT=mpi"});
  EXPECT_THAT(lines, ElementsAre(StartsWith("KMP_AFFINITY, KMP_BLOCKTIME: not used"),
                                 StartsWith("CCL_ATL_TRANSPORT, CCL_WORKER_COUNT, I_MPI_PIN: ")));
}

TEST(UnneededVariables, AreNotThoseWithAnEffect) {
  EXPECT_THAT(lines_for({"OMP_NUM_THREADS=4", "LOGLEVEL=INFO", "GLOO_SOCKET_IFNAME=eth0",
                         "NCCL_SOCKET_IFNAME=eth0", "HF_HOME=/x", "HF_HUB_CACHE=/x",
                         "HF_DATASETS_CACHE=/x", "HF_TOKEN=x", "HF_HUB_OFFLINE=1",
                         "TRANSFORMERS_CACHE=/x", "TRANSFORMERS_OFFLINE=1", "HOME=/root",
                         "LD_PRELOAD=/usr/lib/libfaketime.so", "KMP_AFFINITY="}),
              IsEmpty());
}

TEST(UnneededVariables, NamePreloadsThatDoNotExist) {
  EXPECT_THAT(lines_for({"TILEWRIGHT_MISSING_PRELOADS=/a.so:/b.so"}),
              ElementsAre("LD_PRELOAD: not loaded and not needed, because the image does not have "
                          "/a.so:/b.so"));
}

}  // namespace
}  // namespace tilewright
