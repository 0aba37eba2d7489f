// The environment variables by which whoever starts a worker (pod, process, mpirun, torchrun's
// user) tells it what it is.
#pragma once

namespace tilewright::env {

// Set by both runtimes and understood by the worker. A flag of the same meaning wins over them.
inline constexpr const char* kRendezvous = "TILEWRIGHT_RENDEZVOUS";  // host:port of the coordinator
inline constexpr const char* kJobUid = "TILEWRIGHT_JOB_UID";         // stamped into every output
inline constexpr const char* kJobName = "TILEWRIGHT_JOB_NAME";       // metadata.name
inline constexpr const char* kJobKeyFile = "TILEWRIGHT_JOB_KEY_FILE";  // file with the job's secret
inline constexpr const char* kTls = "TILEWRIGHT_TLS";  // true: all of the job's traffic under TLS
inline constexpr const char* kWorkerIndex = "TILEWRIGHT_WORKER_INDEX";  // 0 ... maxReplicas - 1
// host:port where the worker's first process serves /metrics; nothing is served where it is not
// set.
inline constexpr const char* kMetricsAddress = "TILEWRIGHT_METRICS_ADDRESS";
// The port that the worker's first process listens on for the other workers, its next process on
// the next one; any free port where it is not set.
inline constexpr const char* kTransportPort = "TILEWRIGHT_TRANSPORT_PORT";
inline constexpr const char* kIsa = "TILEWRIGHT_ISA";      // ref, avx2, avx512, avx512_bf16, amx
inline constexpr const char* kFault = "TILEWRIGHT_FAULT";  // fault points, for tests

// torchrun's and PyTorchJob's names, with their meanings.
inline constexpr const char* kMasterAddr = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
inline constexpr const char* kWorldSize = "WORLD_SIZE";
inline constexpr const char* kRank = "RANK";
inline constexpr const char* kLocalRank = "LOCAL_RANK";
inline constexpr const char* kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr const char* kGroupRank = "GROUP_RANK";
inline constexpr const char* kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr const char* kTorchelasticRunId = "TORCHELASTIC_RUN_ID";
inline constexpr const char* kTorchelasticRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr const char* kTorchelasticMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr const char* kPetRdzvBackend = "PET_RDZV_BACKEND";
inline constexpr const char* kPetRdzvEndpoint = "PET_RDZV_ENDPOINT";
inline constexpr const char* kPetNnodes = "PET_NNODES";
inline constexpr const char* kPetNprocPerNode = "PET_NPROC_PER_NODE";
inline constexpr const char* kPetMaxRestarts = "PET_MAX_RESTARTS";

}  // namespace tilewright::env
