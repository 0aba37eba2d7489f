// The environment variables that the programs read or set for each other. docs/reference.md is
// generated from this table.
#pragma once

#include <string_view>

#include "common/contract/table.h"

namespace tilewright::env {

struct Variable {
  std::string_view name;
  std::string_view read_by;
  std::string_view set_by;         // empty: the user
  std::string_view default_value;  // used if the variable is not set; empty: none
  std::string_view meaning;
};

inline constexpr Variable kVariables[] = {
    {"TILEWRIGHT_RENDEZVOUS", "tilewright-worker", "operator, tilewright up, agent", "",
     "`host:port` of the [coordinator](#terms). Without it the worker trains alone."},
    {"TILEWRIGHT_JOB_UID", "tilewright-worker", "operator, tilewright up, agent", "",
     "UID of the job. The worker writes it into every checkpoint and output."},
    {"TILEWRIGHT_JOB_NAME", "tilewright-worker", "operator, tilewright up", "",
     "`metadata.name` of the job, a label of the worker's metrics."},
    {"TILEWRIGHT_JOB_KEY_FILE", "tilewright-worker", "operator, tilewright up, agent", "",
     "File that holds the job's secret."},
    {"TILEWRIGHT_TLS", "tilewright-worker", "operator, tilewright up, agent", "false",
     "`true` encrypts all traffic of the job's workers and the coordinator with TLS."},
    {"TILEWRIGHT_WORKER_INDEX", "tilewright-worker", "operator, tilewright up, agent", "0",
     "Index of the worker, 0 to maxReplicas - 1."},
    {"TILEWRIGHT_METRICS_ADDRESS", "tilewright-worker", "operator", "",
     "`host:port`, or `:port` for all addresses, where the worker's first process serves "
     "`/metrics`. Without it the worker serves no metrics."},
    {"TILEWRIGHT_TRANSPORT_PORT", "tilewright-worker", "operator, agent", "",
     "Port on which the worker's first process listens for other workers; process n uses the port "
     "plus n. Without it the system picks a free port."},
    {"TILEWRIGHT_LAUNCH_TIME", "tilewright-worker", "operator, agent", "the start of rank 0",
     "Start of the job in seconds since 1970, at which each `$(date +FORMAT)` in the arguments is "
     "expanded."},
    {"TILEWRIGHT_OUTPUT_DIR", "tilewright-worker", "operator", "",
     "`--output_dir` of a PyTorchJob's pods if the flag holds a `$(date +FORMAT)`: expanded once "
     "for the job, in UTC."},
    {"TILEWRIGHT_NOMINAL_WORKERS", "tilewright-worker", "operator", "WORLD_SIZE",
     "`--nominal_workers` of a PyTorchJob's pods."},
    {"TILEWRIGHT_VIRTUAL_SHARDS", "tilewright-worker", "operator", "",
     "`--virtual_shards` of a PyTorchJob's pods."},
    {"TILEWRIGHT_MISSING_PRELOADS", "tilewright-worker", "the launcher of the worker image", "",
     "Entries of LD_PRELOAD that do not exist and were removed."},
    {"TILEWRIGHT_JOIN_TIMEOUT", "tilewright-worker", "agent", "600",
     "Seconds that the worker waits for a membership epoch while none is running; "
     "`join_timeout` of `--rdzv_conf`."},
    {"TILEWRIGHT_TRANSPORT_ADDRESS", "tilewright-worker", "agent", "",
     "Address at which the worker listens for other workers. Without it: the address from which "
     "it connects to the rendezvous."},
    {"TILEWRIGHT_PROGRAM", "tilewright-worker agent", "the tarball's start program", "",
     "Path of the program that the agent starts, also on other hosts. Without it: the agent's own "
     "program."},
    {"TILEWRIGHT_ISA", "tilewright-worker", "", "the best one of the CPU",
     "Instruction set of the kernels, one of those that `tilewright-worker doctor` lists."},
    {"TILEWRIGHT_FAULT", "tilewright-worker, tilewright controller", "", "",
     "Fault injection for tests: the point at which the process dies, stops or waits."},
    // Variables with the names and meanings of torchrun.
    {"MASTER_ADDR", "tilewright-worker", "agent", "the address of rank 0's host",
     "Host of rank 0, which serves the rendezvous of processes that mpirun or srun started. The "
     "agent sets it as torchrun does, for user programs."},
    {"MASTER_PORT", "tilewright-worker", "agent", "",
     "Port of that rendezvous on several hosts. Without it rank 0 publishes a free port; without "
     "PMI and PMIx the port is 29500. The agent sets it as torchrun does."},
    {"WORLD_SIZE", "tilewright-worker", "agent", "1",
     "Processes of the job, with `--nnodes MIN:MAX` those of MAX hosts; the global batch counts "
     "them without `--nominal_workers`. More than 1 needs a rendezvous, or RANK and MASTER_ADDR."},
    {"RANK", "tilewright-worker", "agent", "", "Rank of the process in the job."},
    {"LOCAL_RANK", "tilewright-worker", "agent", "0", "Index of the process on its host."},
    {"LOCAL_WORLD_SIZE", "tilewright-worker", "agent", "1",
     "Processes on this host. Each runs on its own cores, in one NUMA node if there are at least "
     "as many processes as nodes. They share CPUs if there are fewer cores than processes or if a "
     "CPU quota is below the number of cores."},
    {"GROUP_RANK", "user programs", "agent", "", "Index of the host."},
    {"GROUP_WORLD_SIZE", "user programs", "agent", "", "Hosts of the job."},
    {"TORCHELASTIC_RUN_ID", "tilewright-worker, user programs", "agent", "",
     "`--rdzv_id` of the agent. If it is TILEWRIGHT_JOB_UID, several launches may have it."},
    {"TORCHELASTIC_RESTART_COUNT", "user programs", "agent", "",
     "How often the agent has restarted the process."},
    {"TORCHELASTIC_MAX_RESTARTS", "user programs", "agent", "", "`--max_restarts` of the agent."},
    // Variables of MPI launchers, read without TILEWRIGHT_RENDEZVOUS.
    {"PMI_SIZE", "tilewright-worker", "Hydra, srun --mpi=pmi2", "1", "Processes of the job."},
    {"PMI_RANK", "tilewright-worker", "Hydra, srun --mpi=pmi2", "", "Rank of the process."},
    {"PMI_FD", "tilewright-worker", "Hydra, srun --mpi=pmi2", "",
     "Connection to the process manager (PMI-1), through which the ranks find rank 0."},
    {"MPI_LOCALNRANKS", "tilewright-worker", "Hydra", "1",
     "Processes on this host. They share its CPUs unless the launcher has bound them."},
    {"MPI_LOCALRANKID", "tilewright-worker", "Hydra", "0", "Index of the process on its host."},
    {"PMIX_NAMESPACE", "tilewright-worker", "mpirun (Open MPI), srun --mpi=pmix", "",
     "Job of the process manager (PMIx), through which the ranks find rank 0."},
    {"OMPI_COMM_WORLD_SIZE", "tilewright-worker", "mpirun (Open MPI)", "1", "As PMI_SIZE."},
    {"OMPI_COMM_WORLD_RANK", "tilewright-worker", "mpirun (Open MPI)", "", "As PMI_RANK."},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "tilewright-worker", "mpirun (Open MPI)", "1",
     "As MPI_LOCALNRANKS."},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "tilewright-worker", "mpirun (Open MPI)", "0",
     "As MPI_LOCALRANKID."},
    {"SLURM_STEP_NUM_TASKS", "tilewright-worker", "srun", "1", "As PMI_SIZE."},
    {"SLURM_PROCID", "tilewright-worker", "srun", "", "As PMI_RANK."},
    {"SLURM_LOCALID", "tilewright-worker", "srun", "0", "As MPI_LOCALRANKID."},
    {"SLURM_NODEID", "tilewright-worker", "srun", "0",
     "Index of the host in SLURM_STEP_TASKS_PER_NODE."},
    {"SLURM_STEP_TASKS_PER_NODE", "tilewright-worker", "srun", "",
     "Processes on each host, `2(x3),1`; as MPI_LOCALNRANKS."},
    {"SLURM_JOB_ID", "tilewright-worker", "srun", "", "With SLURM_STEP_ID, names the job."},
    {"SLURM_STEP_ID", "tilewright-worker", "srun", "", "See SLURM_JOB_ID."},
    // Variables of OpenMP and PyTorch, with their meanings.
    {"OMP_NUM_THREADS", "tilewright-worker", "", "one thread per physical core",
     "Threads of a process without `--threads`, at most its share of the allowed CPUs."},
    {"LOGLEVEL", "tilewright-worker", "", "INFO",
     "Log level without `--log_level`: DEBUG, INFO, WARNING, ERROR or CRITICAL."},
    {"GLOO_SOCKET_IFNAME", "tilewright-worker", "", "the interface that reaches the rendezvous",
     "Network interface at whose address the other workers connect to this one: a name, or several "
     "separated by commas, of which the first that exists is used."},
    {"NCCL_SOCKET_IFNAME", "tilewright-worker", "", "",
     "As GLOO_SOCKET_IFNAME, which counts if both are set, with prefixes of names; `=` before the "
     "list: whole names; `^`: all interfaces but these."},
    // Variables of the controller's pod.
    {"POD_NAME", "tilewright controller", "Helm chart", "the host name",
     "Name of the controller's pod; part of its leader election identity."},
    {"POD_NAMESPACE", "tilewright controller", "Helm chart", "the kubeconfig's namespace",
     "Namespace of the Lease, the master key Secret and the rendezvous Service."},
    {"POD_IP", "tilewright controller", "Helm chart", "",
     "Address that the leader publishes for its rendezvous; `--rendezvous_address` overrides it."},
    // Variables of huggingface_hub, transformers and datasets, with their meanings.
    {"HF_ENDPOINT", "tilewright-worker", "", "https://huggingface.co",
     "URL of the hub from which models and data sets are downloaded."},
    {"HF_HOME", "tilewright-worker", "", "~/.cache/huggingface",
     "Directory of the caches (`hub`, `datasets`) and of the file `token`."},
    {"HF_HUB_CACHE", "tilewright-worker", "", "`$HF_HOME/hub`",
     "Cache of downloaded models and data sets, shared with huggingface_hub. `--cache_dir` "
     "overrides it."},
    {"HUGGINGFACE_HUB_CACHE", "tilewright-worker", "", "", "Older name of HF_HUB_CACHE."},
    {"TRANSFORMERS_CACHE", "tilewright-worker", "", "`$HF_HUB_CACHE`",
     "Cache of models. As in transformers 4, it comes before HF_HUB_CACHE; data sets do not use "
     "it."},
    {"HF_DATASETS_CACHE", "tilewright-worker", "", "`$HF_HOME/datasets`",
     "Cache of the datasets library, whose Arrow files are read if they hold the data set. Its "
     "directory `tilewright` keeps the tokens of training data."},
    {"XDG_CACHE_HOME", "tilewright-worker", "", "~/.cache",
     "Parent of `huggingface`, the default of HF_HOME."},
    {"HF_TOKEN", "tilewright-worker", "", "the content of HF_TOKEN_PATH",
     "Token for private and gated repositories of the hub."},
    {"HUGGING_FACE_HUB_TOKEN", "tilewright-worker", "", "", "Older name of HF_TOKEN."},
    {"HF_TOKEN_PATH", "tilewright-worker", "", "`$HF_HOME/token`", "File that holds the token."},
    {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "tilewright-worker", "", "",
     "`1`, `ON`, `YES` or `TRUE`: only the token of `--token` is sent, none of variables or "
     "files."},
    {"HF_HUB_OFFLINE", "tilewright-worker", "", "",
     "`1`, `ON`, `YES` or `TRUE`: only local directories and caches are used, never the network."},
    {"TRANSFORMERS_OFFLINE", "tilewright-worker", "", "", "As HF_HUB_OFFLINE."},
    {"HF_DATASETS_OFFLINE", "tilewright-worker", "", "HF_HUB_OFFLINE",
     "As HF_HUB_OFFLINE, for data sets only."},
    {"HTTPS_PROXY", "tilewright-worker", "", "",
     "Proxy for downloads from the hub, as curl reads it and the next variables."},
    {"https_proxy", "tilewright-worker", "", "", "Counts before HTTPS_PROXY."},
    {"http_proxy", "tilewright-worker", "", "", "Proxy for an HF_ENDPOINT without TLS."},
    {"ALL_PROXY", "tilewright-worker", "", "", "Proxy where the others are not set."},
    {"all_proxy", "tilewright-worker", "", "", "Counts before ALL_PROXY."},
    {"NO_PROXY", "tilewright-worker", "", "",
     "Hosts that are reached without a proxy, separated by commas."},
    {"no_proxy", "tilewright-worker", "", "", "Counts before NO_PROXY."},
    {"REQUESTS_CA_BUNDLE", "tilewright-worker", "", "SSL_CERT_FILE",
     "CA certificates for the hub, a file or a directory, as Python's requests reads it."},
    {"CURL_CA_BUNDLE", "tilewright-worker", "", "", "As REQUESTS_CA_BUNDLE, which comes first."},
    // Variables of other programs, with their meanings.
    {"KUBECONFIG", "tilewright controller, tilewright validate", "",
     "the pod's service account, or else ~/.kube/config",
     "Kubeconfig files, separated by colons, as kubectl reads them."},
    {"KUBERNETES_SERVICE_HOST", "tilewright controller, tilewright validate", "kubelet", "",
     "Host of the API server inside a cluster."},
    {"KUBERNETES_SERVICE_PORT", "tilewright controller, tilewright validate", "kubelet", "",
     "Port of the API server inside a cluster."},
    {"SSL_CERT_FILE", "tilewright controller, tilewright validate, tilewright-worker", "",
     "the system's certificates",
     "CA certificates for an API server whose kubeconfig names no CA, and for the hub."},
    {"SSL_CERT_DIR", "tilewright controller, tilewright validate, tilewright-worker", "",
     "the system's certificates", "Directories of CA certificates, as for SSL_CERT_FILE."},
    {"NO_COLOR", "tilewright up", "", "", "Any value turns colours off (no-color.org)."},
};

// The variable's name for getenv() and setenv(). It is null-terminated, because rows are string
// literals.
consteval const char* name_of(std::string_view name) {
  return find_row(kVariables, name).name.data();
}

inline constexpr const char* kRendezvous = name_of("TILEWRIGHT_RENDEZVOUS");
inline constexpr const char* kJobUid = name_of("TILEWRIGHT_JOB_UID");
inline constexpr const char* kJobName = name_of("TILEWRIGHT_JOB_NAME");
inline constexpr const char* kJobKeyFile = name_of("TILEWRIGHT_JOB_KEY_FILE");
inline constexpr const char* kTls = name_of("TILEWRIGHT_TLS");
inline constexpr const char* kWorkerIndex = name_of("TILEWRIGHT_WORKER_INDEX");
inline constexpr const char* kMetricsAddress = name_of("TILEWRIGHT_METRICS_ADDRESS");
inline constexpr const char* kTransportPort = name_of("TILEWRIGHT_TRANSPORT_PORT");
inline constexpr const char* kLaunchTime = name_of("TILEWRIGHT_LAUNCH_TIME");
inline constexpr const char* kOutputDir = name_of("TILEWRIGHT_OUTPUT_DIR");
inline constexpr const char* kNominalWorkers = name_of("TILEWRIGHT_NOMINAL_WORKERS");
inline constexpr const char* kVirtualShards = name_of("TILEWRIGHT_VIRTUAL_SHARDS");
inline constexpr const char* kMissingPreloads = name_of("TILEWRIGHT_MISSING_PRELOADS");
inline constexpr const char* kJoinTimeout = name_of("TILEWRIGHT_JOIN_TIMEOUT");
inline constexpr const char* kTransportAddress = name_of("TILEWRIGHT_TRANSPORT_ADDRESS");
inline constexpr const char* kProgram = name_of("TILEWRIGHT_PROGRAM");
inline constexpr const char* kIsa = name_of("TILEWRIGHT_ISA");
inline constexpr const char* kFault = name_of("TILEWRIGHT_FAULT");

inline constexpr const char* kMasterAddr = name_of("MASTER_ADDR");
inline constexpr const char* kMasterPort = name_of("MASTER_PORT");
inline constexpr const char* kWorldSize = name_of("WORLD_SIZE");
inline constexpr const char* kRank = name_of("RANK");
inline constexpr const char* kLocalRank = name_of("LOCAL_RANK");
inline constexpr const char* kLocalWorldSize = name_of("LOCAL_WORLD_SIZE");
inline constexpr const char* kGroupRank = name_of("GROUP_RANK");
inline constexpr const char* kGroupWorldSize = name_of("GROUP_WORLD_SIZE");
inline constexpr const char* kTorchelasticRunId = name_of("TORCHELASTIC_RUN_ID");
inline constexpr const char* kTorchelasticRestartCount = name_of("TORCHELASTIC_RESTART_COUNT");
inline constexpr const char* kTorchelasticMaxRestarts = name_of("TORCHELASTIC_MAX_RESTARTS");

inline constexpr const char* kPmiSize = name_of("PMI_SIZE");
inline constexpr const char* kPmiRank = name_of("PMI_RANK");
inline constexpr const char* kPmiFd = name_of("PMI_FD");
inline constexpr const char* kMpiLocalNRanks = name_of("MPI_LOCALNRANKS");
inline constexpr const char* kMpiLocalRankId = name_of("MPI_LOCALRANKID");
inline constexpr const char* kPmixNamespace = name_of("PMIX_NAMESPACE");
inline constexpr const char* kOmpiCommWorldSize = name_of("OMPI_COMM_WORLD_SIZE");
inline constexpr const char* kOmpiCommWorldRank = name_of("OMPI_COMM_WORLD_RANK");
inline constexpr const char* kOmpiCommWorldLocalSize = name_of("OMPI_COMM_WORLD_LOCAL_SIZE");
inline constexpr const char* kOmpiCommWorldLocalRank = name_of("OMPI_COMM_WORLD_LOCAL_RANK");
inline constexpr const char* kSlurmStepNumTasks = name_of("SLURM_STEP_NUM_TASKS");
inline constexpr const char* kSlurmProcId = name_of("SLURM_PROCID");
inline constexpr const char* kSlurmLocalId = name_of("SLURM_LOCALID");
inline constexpr const char* kSlurmNodeId = name_of("SLURM_NODEID");
inline constexpr const char* kSlurmStepTasksPerNode = name_of("SLURM_STEP_TASKS_PER_NODE");
inline constexpr const char* kSlurmJobId = name_of("SLURM_JOB_ID");
inline constexpr const char* kSlurmStepId = name_of("SLURM_STEP_ID");

inline constexpr const char* kOmpNumThreads = name_of("OMP_NUM_THREADS");
inline constexpr const char* kLogLevel = name_of("LOGLEVEL");
inline constexpr const char* kGlooSocketIfname = name_of("GLOO_SOCKET_IFNAME");
inline constexpr const char* kNcclSocketIfname = name_of("NCCL_SOCKET_IFNAME");

inline constexpr const char* kHfEndpoint = name_of("HF_ENDPOINT");
inline constexpr const char* kHfHome = name_of("HF_HOME");
inline constexpr const char* kHfHubCache = name_of("HF_HUB_CACHE");
inline constexpr const char* kHuggingfaceHubCache = name_of("HUGGINGFACE_HUB_CACHE");
inline constexpr const char* kTransformersCache = name_of("TRANSFORMERS_CACHE");
inline constexpr const char* kHfDatasetsCache = name_of("HF_DATASETS_CACHE");
inline constexpr const char* kXdgCacheHome = name_of("XDG_CACHE_HOME");
inline constexpr const char* kHfToken = name_of("HF_TOKEN");
inline constexpr const char* kHuggingFaceHubToken = name_of("HUGGING_FACE_HUB_TOKEN");
inline constexpr const char* kHfTokenPath = name_of("HF_TOKEN_PATH");
inline constexpr const char* kHfHubDisableImplicitToken = name_of("HF_HUB_DISABLE_IMPLICIT_TOKEN");
inline constexpr const char* kHfHubOffline = name_of("HF_HUB_OFFLINE");
inline constexpr const char* kTransformersOffline = name_of("TRANSFORMERS_OFFLINE");
inline constexpr const char* kHfDatasetsOffline = name_of("HF_DATASETS_OFFLINE");
inline constexpr const char* kRequestsCaBundle = name_of("REQUESTS_CA_BUNDLE");
inline constexpr const char* kCurlCaBundle = name_of("CURL_CA_BUNDLE");
inline constexpr const char* kSslCertFile = name_of("SSL_CERT_FILE");
inline constexpr const char* kSslCertDir = name_of("SSL_CERT_DIR");

inline constexpr const char* kPodName = name_of("POD_NAME");
inline constexpr const char* kPodNamespace = name_of("POD_NAMESPACE");
inline constexpr const char* kPodIp = name_of("POD_IP");

}  // namespace tilewright::env
