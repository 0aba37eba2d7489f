// `tilewright-worker agent`: starts the worker processes of one host, like torchrun, or of the
// hosts of a hostfile, like mpirun.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "common/base/commit.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/random.h"
#include "common/base/strings.h"
#include "common/base/version.h"
#include "common/contract/environment.h"
#include "common/contract/pod_paths.h"
#include "common/contract/ports.h"
#include "common/contract/training_checks.h"
#include "common/host/cpu_plan.h"
#include "common/launch/torchrun.h"
#include "worker/cli/commands.h"
#include "worker/cli/launch_command.h"
#include "worker/cli/variables.h"
#include "worker/elastic/agent.h"
#include "worker/elastic/host_group.h"
#include "worker/elastic/host_variables.h"
#include "worker/elastic/local_host.h"
#include "worker/elastic/remote_host.h"
#include "worker/runtime/cpu.h"

namespace tilewright::cli {
namespace {

constexpr const char* kStandardInput = "-";
constexpr Duration kKeyTimeout = std::chrono::seconds(60);

std::string executable_path() {
  if (std::string path = environment_variable(env::kProgram); !path.empty()) return path;
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) throw Failure(ExitCode::kInternal, "cannot read /proc/self/exe");
  return {path, static_cast<std::size_t>(size)};
}

std::string version() { return fmt::format("{} ({})", kVersion, kCommit); }

// The flags that torchrun does not have.
struct Flags {
  std::string key_file;
  std::string hostfile;
  std::string interface;
  std::string port_range;
  std::string log_level;  // empty: that of LOGLEVEL
  bool check = false;
};

// Whether all membership epochs of the processes need the same instruction set. What is wrong with
// the words, the processes say.
bool trains_exactly(const std::vector<std::string>& words) {
  if (words.empty() || words.front() != "train") return true;
  const auto arguments = TrainingArguments::parse({words.begin() + 1, words.end()});
  return !arguments.ok() || is_exact(arguments->settings());
}

std::vector<launch::ExtraFlag> flag_table(Flags& flags) {
  const auto text = [](std::string& target) {
    return [&target](const std::string& value) { target = value; };
  };
  return {
      {"rdzv-key-file", "FILE",
       "File with the job's secret, the same on all hosts; - reads it from standard input",
       text(flags.key_file)},
      {"hostfile", "FILE", "Start the agent on these hosts over ssh: host, host slots=N or host:N",
       text(flags.hostfile)},
      {"check", "", "Check whether this host, or each host of --hostfile, can train",
       [&flags](const std::string&) { flags.check = true; }},
      {"interface", "NAME", "Network interface whose address the other hosts connect to",
       text(flags.interface)},
      {"port-range", "FIRST-LAST", "Ports of the rendezvous and the processes",
       text(flags.port_range)},
      {"log-level", "LEVEL", "Lowest level of messages to log; without it that of LOGLEVEL",
       text(flags.log_level)},
  };
}

// The next line of standard input without its newline; nullopt if none comes in time.
std::optional<std::string> read_line(std::size_t max_bytes, const net::Wait& wait) {
  std::string text;
  char byte = 0;
  while (net::wait_ready(STDIN_FILENO, POLLIN, wait) == net::Ready::kYes &&
         read(STDIN_FILENO, &byte, 1) == 1) {
    if (byte == '\n') return text;
    if (text.size() == max_bytes) break;
    text += byte;
  }
  return std::nullopt;
}

// What a host group sends: the secret, then variables.
std::shared_ptr<const net::SecretKey> read_key_and_variables() {
  const net::Wait wait = net::within(kKeyTimeout);
  std::optional<std::string> text = read_line(net::SecretKey::kMaxBytes, wait);
  if (!text)
    throw Failure(ExitCode::kUsage,
                  "--rdzv-key-file -: found no whole line, expected the secret on standard input");
  auto key = net::SecretKey::from_bytes(*text);
  std::fill(text->begin(), text->end(), '\0');
  const Status set = elastic::set_variables_of_host_group(
      [&](std::size_t max_bytes) { return read_line(max_bytes, wait); });
  if (!set.ok()) throw Failure(set.error());
  return std::make_shared<const net::SecretKey>(std::move(key).or_throw());
}

// Prints one line about this host; host groups read it (check_hosts()).
int check_this_host(const elastic::AgentOptions& options) {
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  const std::string forced = environment_variable(env::kIsa);
  const auto isa = runtime::choose_isa(cpu, forced);
  const elastic::PortRange any{kRendezvousPort, UINT16_MAX};
  const elastic::PortRange ports = options.ports.value_or(any);
  const auto port = elastic::find_free_ports(ports.first, ports.last, options.nproc_per_node);
  std::printf("tilewright-worker %s, %s, %d CPUs, %s, %s\n", version().c_str(),
              printable(cpu.model).c_str(), host::plan_cpus(host::this_host(), 1).of(0).max_threads,
              isa.ok() ? std::string(runtime::name(*isa)).c_str() : isa.error().message.c_str(),
              port ? fmt::format("port {} free", *port).c_str()
                   : fmt::format("no {} free ports from {} to {}", options.nproc_per_node,
                                 ports.first, ports.last)
                         .c_str());
  return isa.ok() && port ? 0 : static_cast<int>(ExitCode::kUnsupported);
}

// Of the agents of a host group.
std::vector<std::string> common_flags(const Flags& flags, const launch::TorchrunOptions& torchrun) {
  std::vector<std::string> result = {"--log-level=" + flags.log_level};
  const auto add = [&](const char* name, const std::optional<std::string>& value) {
    if (value) result.push_back(fmt::format("--{}={}", name, *value));
  };
  if (!flags.interface.empty()) add("interface", flags.interface);
  if (!flags.port_range.empty()) add("port-range", flags.port_range);
  add("max-restarts", torchrun.max_restarts);
  add("shutdown-timeout", torchrun.shutdown_timeout);
  add("role", torchrun.role);
  add("log-dir", torchrun.log_dir);
  add("redirects", torchrun.redirects);
  add("tee", torchrun.tee);
  add("local-ranks-filter", torchrun.local_ranks_filter);
  return result;
}

// What the hostfile says of the flags: number of hosts and processes.
elastic::HostGroupOptions host_group(const Flags& flags, const launch::TorchrunOptions& torchrun,
                                     elastic::AgentOptions agent, const StopSignals& signals) {
  elastic::HostGroupOptions group;
  group.hosts =
      elastic::this_host_first(elastic::read_hostfile(flags.hostfile).or_throw(), signals);
  const int hosts = static_cast<int>(group.hosts.size());
  if (torchrun.nnodes && agent.max_nodes != hosts)
    throw Failure(ExitCode::kUsage,
                  fmt::format("--nnodes is {}, and {} has {}, expected as many", *torchrun.nnodes,
                              flags.hostfile, counted(group.hosts.size(), "host")));
  if (!torchrun.nnodes) agent.min_nodes = agent.max_nodes = hosts;
  if (torchrun.standalone)
    throw Failure(ExitCode::kUsage, "--standalone is for one host, and --hostfile names several");
  if (!torchrun.nproc_per_node)
    agent.nproc_per_node = elastic::common_slots(group.hosts).or_throw().value_or(1);
  if (torchrun.nproc_per_node == "auto" || torchrun.nproc_per_node == "cpu")
    agent.notes.push_back(
        fmt::format("--nproc-per-node {} is {} on every host, as this host has "
                    "NUMA nodes; give a number if the others have more or fewer",
                    *torchrun.nproc_per_node, agent.nproc_per_node));
  for (const auto& [name, given] : {std::pair("rdzv-endpoint", torchrun.rdzv_endpoint.has_value()),
                                    {"rdzv-backend", torchrun.rdzv_backend.has_value()},
                                    {"node-rank", torchrun.node_rank.has_value()},
                                    {"master-addr", torchrun.master_addr.has_value()},
                                    {"master-port", torchrun.master_port.has_value()},
                                    {"rdzv-key-file", !flags.key_file.empty()}}) {
    if (given)
      agent.notes.push_back(
          fmt::format("--{} has no effect with --hostfile: this process serves the rendezvous and "
                      "gives each host its rank and the secret",
                      name));
  }
  agent.rdzv_endpoint.reset();
  agent.serving = elastic::Serving::kAlways;
  agent.node_rank = 0;
  agent.rdzv_key = std::make_shared<const net::SecretKey>(
      net::SecretKey::from_bytes(random_hex(kJobKeyBytes)).or_throw());
  const auto ssh = find_program("ssh", environment_variable("PATH"));
  if (!ssh) throw Failure(ExitCode::kUsage, "found no program ssh in PATH, expected an ssh client");
  group.ssh = *ssh;
  group.program = executable_path();
  group.version = version();
  group.flags = common_flags(flags, torchrun);
  elastic::HostVariables variables = elastic::variables_for_hosts(environ);
  group.variables = std::move(variables.lines);
  agent.notes.insert(agent.notes.end(), variables.notes.begin(), variables.notes.end());
  group.agent = std::move(agent);
  return group;
}

}  // namespace

int run_agent_command(std::vector<std::string> words) {
  Flags flags;
  const std::vector<launch::ExtraFlag> table = flag_table(flags);
  const launch::TorchrunOptions torchrun =
      launch::take_torchrun_options(words, environment_variable, table).or_throw();
  if (torchrun.help) {
    std::printf(
        "Start the worker processes of this host, or of the hosts of a hostfile\n"
        "Usage: tilewright-worker agent [FLAG]... [--] COMMAND [ARGUMENT]...\n\n"
        "Flags of torchrun, which may also be written with _ or set as variables PET_NAME, and of "
        "Tilewright:\n"
        "%s",
        launch::torchrun_help(table).c_str());
    return 0;
  }
  if (flags.log_level.empty()) {
    flags.log_level = log_level(environment_variable(env::kLogLevel)).name;
  }
  if (const auto level = normalize_flag_value(*find_training_flag("log_level"), flags.log_level);
      !level.ok()) {
    throw Failure(level.error().code, "--log-level: " + level.error().message);
  }
  if (begins_with_script(words)) words = train_command(words);
  elastic::AgentOptions options;
  elastic::set_torchrun_options(options, torchrun);
  options.rendezvous.exact = trains_exactly(words);
  if (!flags.interface.empty()) elastic::set_interface(options, flags.interface);
  if (!flags.port_range.empty()) elastic::set_port_range(options, flags.port_range);
  const StopSignals signals;
  const auto log = make_logger(flags.log_level);
  options.command = words;
  options.command.insert(options.command.begin(), executable_path());
  if (flags.check) {
    if (flags.hostfile.empty()) return check_this_host(options);
    elastic::HostGroupOptions group = host_group(flags, torchrun, std::move(options), signals);
    group.flags.push_back(fmt::format("--nproc-per-node={}", group.agent.nproc_per_node));
    return elastic::check_hosts(group, signals, STDOUT_FILENO);
  }
  if (words.empty())
    throw Failure(ExitCode::kUsage, "agent: found no command after the flags, expected: train ...");
  if (!flags.hostfile.empty()) {
    elastic::HostGroupOptions group = host_group(flags, torchrun, std::move(options), signals);
    elastic::complete_options(group.agent, environment_variable);
    if (group.agent.external_rendezvous)
      throw Failure(ExitCode::kUsage,
                    fmt::format("--hostfile and {} exclude each other", env::kRendezvous));
    return elastic::run_host_group(std::move(group), signals, log);
  }
  const bool in_group = flags.key_file == kStandardInput;
  if (in_group) {
    options.rdzv_key = read_key_and_variables();
    options.control_fd = STDIN_FILENO;
  } else {
    options.rdzv_key_file = flags.key_file;
  }
  elastic::complete_options(options, environment_variable);
  if (in_group) {
    std::fputs(elastic::started_line(version()).c_str(), stdout);
    std::fflush(stdout);
  }
  return elastic::run_agent(options, signals, log);
}

void add_agent_command(CLI::App& app) {
  app.add_subcommand("agent",
                     "Start the worker processes of this host: agent [flags] -- train ...");
}

}  // namespace tilewright::cli
