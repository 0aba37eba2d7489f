#include "worker/elastic/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/host/process_status.h"

namespace tilewright::elastic {
namespace {

constexpr int kMaxNodes = 65536;

int required_integer(const GetVariable& environment, const char* name, int least, int most) {
  const std::string text = environment(name);
  if (const auto value = parse_number<int>(text, least, most)) return *value;
  throw Failure(ExitCode::kUsage,
                fmt::format("{} is {}, expected an integer from {} to {}", name,
                            text.empty() ? "not set" : "\"" + text + "\"", least, most));
}

// A variable of the launcher that may be missing: `otherwise`.
int optional_integer(const GetVariable& environment, const char* name, int least, int most,
                     int otherwise) {
  if (environment(name).empty()) return otherwise;
  return required_integer(environment, name, least, most);
}

struct Names {
  const char* size;
  const char* rank;
  const char* local_size;
  const char* local_rank;
};

int most_local_processes(int world) { return std::min(world, rendezvous::kMaxLocalRank + 1); }

LaunchedProcess read_launcher(const GetVariable& environment, std::string launcher,
                              const Names& names) {
  LaunchedProcess process;
  process.launcher = std::move(launcher);
  process.world = required_integer(environment, names.size, 1, rendezvous::kMaxWorld);
  process.rank = required_integer(environment, names.rank, 0, process.world - 1);
  const int most = most_local_processes(process.world);
  process.local_rank = optional_integer(environment, names.local_rank, 0, most - 1, 0);
  process.local_world = optional_integer(environment, names.local_size, 1, most, 0);
  return process;
}

// The number of processes that a variable counts; 0 if it is no integer: another program's.
int processes(const GetVariable& environment, const char* name) {
  return parse_number<int>(environment(name), 0, 1 << 30).value_or(0);
}

// Slurm's ids have up to 64 bits; the step of an interactive shell is 4294967290. The name of the
// key file contains the id.
std::string slurm_id(const std::string& id) {
  const bool is_number =
      !id.empty() && id.size() <= 20 && id.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? id : "0";
}

}  // namespace

std::optional<LaunchedProcess> detect_launcher(const GetVariable& environment) {
  if (!environment(env::kRendezvous).empty()) return std::nullopt;
  LaunchedProcess process;
  if (processes(environment, env::kPmiSize) > 1) {
    process =
        read_launcher(environment, environment(env::kMpiLocalNRanks).empty() ? "PMI" : "Hydra",
                      {env::kPmiSize, env::kPmiRank, env::kMpiLocalNRanks, env::kMpiLocalRankId});
    if (!environment(env::kPmiFd).empty()) process.space = KeyValueSpace::kPmi1;
  } else if (processes(environment, env::kOmpiCommWorldSize) > 1) {
    process = read_launcher(environment, "Open MPI",
                            {env::kOmpiCommWorldSize, env::kOmpiCommWorldRank,
                             env::kOmpiCommWorldLocalSize, env::kOmpiCommWorldLocalRank});
  } else if (processes(environment, env::kSlurmStepNumTasks) > 1) {
    process = read_launcher(environment, "srun",
                            {env::kSlurmStepNumTasks, env::kSlurmProcId, "", env::kSlurmLocalId});
  } else if (processes(environment, env::kWorldSize) > 1) {
    const std::string advice =
        "expected one process on each host, `tilewright-worker agent --nproc_per_node=N -- train "
        "...`, which starts the others, or mpirun";
    if (!environment(env::kTorchelasticRunId).empty()) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("found {}={} of torchrun without {}: each of the {} processes "
                                "would train the whole job; {}",
                                env::kWorldSize, environment(env::kWorldSize), env::kRendezvous,
                                environment(env::kWorldSize), advice));
    }
    if (environment(env::kRank).empty() || environment(env::kMasterAddr).empty()) {
      throw Failure(
          ExitCode::kUsage,
          fmt::format("found {}={} without {}, or {} and {}: each of the {} processes "
                      "would train the whole job; {}",
                      env::kWorldSize, environment(env::kWorldSize), env::kRendezvous, env::kRank,
                      env::kMasterAddr, environment(env::kWorldSize), advice));
    }
    process = read_launcher(environment, "the environment",
                            {env::kWorldSize, env::kRank, env::kLocalWorldSize, env::kLocalRank});
  } else {
    return std::nullopt;
  }
  if (process.space == KeyValueSpace::kNone && !environment(env::kPmixNamespace).empty()) {
    process.space = KeyValueSpace::kPmix;
  }
  // srun starts processes through PMI too; its own variables have the local ranks.
  if (process.local_world == 0 && !environment(env::kSlurmStepTasksPerNode).empty()) {
    const int node = optional_integer(environment, env::kSlurmNodeId, 0, kMaxNodes, 0);
    process.local_world = tasks_on_node(environment(env::kSlurmStepTasksPerNode), node).value_or(0);
    process.local_rank = optional_integer(environment, env::kSlurmLocalId, 0,
                                          most_local_processes(process.world) - 1, 0);
    if (process.local_world > process.world) process.local_world = 0;
  }
  process.job = environment(env::kSlurmJobId).empty()
                    ? fmt::format("launch-{}", getppid())
                    : fmt::format("slurm-{}-{}", slurm_id(environment(env::kSlurmJobId)),
                                  slurm_id(environment(env::kSlurmStepId)));
  return process;
}

std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node) {
  int first = 0;
  while (!tasks_per_node.empty()) {
    const std::string_view group = tasks_per_node.substr(0, tasks_per_node.find(','));
    tasks_per_node.remove_prefix(std::min(tasks_per_node.size(), group.size() + 1));
    const std::size_t bracket = group.find('(');
    const auto tasks = parse_number<int>(group.substr(0, bracket), 1, kMaxNodes);
    std::optional<int> nodes = 1;
    if (bracket != std::string_view::npos) {
      const std::string_view repeat = group.substr(bracket);
      if (!repeat.starts_with("(x") || !repeat.ends_with(")")) return std::nullopt;
      nodes = parse_number<int>(repeat.substr(2, repeat.size() - 3), 1, kMaxNodes);
    }
    if (!tasks || !nodes) return std::nullopt;
    if (node < first + *nodes) return tasks;
    first += *nodes;
    if (first > kMaxNodes) return std::nullopt;
  }
  return std::nullopt;
}

CpuBinding read_cpu_binding(const std::filesystem::path& proc) {
  // As in /proc/PID/comm, at most 15 bytes.
  constexpr std::array<std::string_view, 11> kDaemons = {
      "orted",   "orterun",       "mpirun",       "mpiexec",         "mpirun.openmpi", "prted",
      "prterun", "mpiexec.hydra", "mpirun.mpich", "hydra_pmi_proxy", "slurmstepd"};
  constexpr int kMaxAncestors = 8;
  const auto parent_of = [&](const std::string& pid) {
    return host::status_field(proc / pid, "PPid:");
  };
  const std::string parent = parent_of("self");
  if (parent.empty()) return {};
  std::string daemon = parent, ancestor = parent;
  for (int i = 0; i < kMaxAncestors && !ancestor.empty() && ancestor != "0"; ++i) {
    if (std::ranges::find(kDaemons, host::status_field(proc / ancestor, "Name:")) !=
        kDaemons.end()) {
      daemon = ancestor;
      break;
    }
    ancestor = parent_of(ancestor);
  }
  const auto count_cpus = [&](const std::string& pid) {  // 0: unknown
    return static_cast<int>(host::allowed_cpus_of(proc / pid).size());
  };
  return {count_cpus("self"), count_cpus(daemon)};
}

}  // namespace tilewright::elastic
