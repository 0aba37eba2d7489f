#include "worker/elastic/agent_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/nearest.h"
#include "common/contract/ports.h"
#include "common/contract/rdzv_conf.h"
#include "common/host/cpu_plan.h"
#include "common/rendezvous/messages.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

// The bounds keep deadlines representable.
constexpr double kMaxSeconds = 1e7;
constexpr int kMaxShutdownSeconds = 10'000'000;

[[noreturn]] void refuse(const std::string& message) { throw Failure(ExitCode::kUsage, message); }

int bounded(const char* flag, const std::string& text, int least, int most) {
  if (const auto value = parse_number<int>(text, least, most)) return *value;
  refuse(fmt::format("{} is \"{}\", expected an integer from {} to {}", flag, text, least, most));
}

int parse_node_count(std::string_view text, const std::string& whole) {
  if (const auto value = parse_number<int>(text, 1, rendezvous::kMaxWorld)) return *value;
  refuse(fmt::format("--nnodes is \"{}\", expected N or MIN:MAX, each from 1 to {}", whole,
                     rendezvous::kMaxWorld));
}

double seconds_of(std::string_view key, std::string_view text) {
  const auto value = parse_number<double>(text, 0, kMaxSeconds);
  if (value && *value > 0) return *value;
  refuse(fmt::format("--rdzv_conf: found \"{}\" for {}, expected a number above 0", text, key));
}

Duration duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// HOST or HOST:PORT; an IPv6 address with a port is in brackets.
net::Address parse_endpoint(const std::string& text, std::uint16_t default_port) {
  if (text.starts_with('[') && text.ends_with(']'))
    return {text.substr(1, text.size() - 2), default_port};
  if (text.starts_with('[') || std::ranges::count(text, ':') == 1)
    return net::parse_address(text).or_throw();
  return {text, default_port};
}

// The keys of torchrun's c10d backend that RdzvConf does not have.
constexpr std::array<std::string_view, 9> kTorchKeys = {
    "is_host",      "timeout",    "join_timeout", "last_call_timeout", "close_timeout",
    "read_timeout", "store_type", "rank",         "heartbeat_timeout"};

[[noreturn]] void refuse_key(std::string_view key) {
  std::vector<std::string_view> names(kRdzvConfKeys.begin(), kRdzvConfKeys.end());
  names.insert(names.end(), kTorchKeys.begin(), kTorchKeys.end());
  refuse(fmt::format("--rdzv_conf: found the key \"{}\", expected one of {}{}", key,
                     fmt::join(names, ", "), did_you_mean(key, names)));
}

// Sets the keys of kTorchKeys.
class TorchConf {
 public:
  explicit TorchConf(AgentOptions& options) : options_(options) {}

  // False: the key is none of kTorchKeys.
  bool set(std::string_view key, std::string_view text) {
    rendezvous::Settings& settings = options_.rendezvous;
    if (key == "is_host") {
      if (text != "true" && text != "false" && text != "1" && text != "0")
        refuse(fmt::format("--rdzv_conf: found \"{}\" for is_host, expected true or false", text));
      options_.serving = text == "true" || text == "1" ? Serving::kAlways : Serving::kNever;
    } else if (key == "timeout" || key == "join_timeout") {
      options_.rdzv_timeout = duration(seconds_of(key, text));
    } else if (key == "last_call_timeout") {
      settings.join_quiet_period = duration(seconds_of(key, text));
    } else if (key == "close_timeout") {
      settings.close_timeout = duration(seconds_of(key, text));
    } else if (key == "read_timeout" || key == "store_type" || key == "rank" ||
               key == "heartbeat_timeout") {
      options_.notes.push_back(
          fmt::format("--rdzv-conf {} has no effect: the rendezvous has no store", key));
    } else {
      return false;
    }
    return true;
  }

 private:
  AgentOptions& options_;
};

void set_processes(AgentOptions& options, const std::string& text) {
  if (text == "gpu" || text == "xpu")
    refuse(
        fmt::format("--nproc-per-node is {}, expected auto, cpu or a number: Tilewright trains "
                    "on CPUs",
                    text));
  if (text != "auto" && text != "cpu") {
    options.nproc_per_node = bounded("--nproc-per-node", text, 1, rendezvous::kMaxLocalRank + 1);
    return;
  }
  // The processes bind themselves to their parts of the same plan.
  const host::CpuPlan plan = host::plan_cpus(host::this_host(), std::nullopt);
  options.nproc_per_node = static_cast<int>(plan.processes.size());
  options.notes.insert(options.notes.end(), plan.reasons.begin(), plan.reasons.end());
}

void set_rendezvous(AgentOptions& options, const launch::TorchrunOptions& flags) {
  if (flags.standalone) {
    if (options.min_nodes > 1)
      refuse(fmt::format("--standalone is for one host, and --nnodes is {}", *flags.nnodes));
    options.max_nodes = 1;
    options.node_rank = 0;
    return;
  }
  const std::string backend = flags.rdzv_backend.value_or("static");
  if (backend != "static" && backend != "c10d")
    refuse(
        fmt::format("--rdzv-backend is {}, expected c10d or static: the agents serve the "
                    "rendezvous themselves",
                    backend));
  if (flags.node_rank)
    options.node_rank = bounded("--node-rank", *flags.node_rank, 0, rendezvous::kMaxWorkerIndex);
  if (backend == "c10d") {
    if (options.serving == Serving::kByRank) options.serving = Serving::kByAddress;
    if (flags.rdzv_endpoint)
      options.rdzv_endpoint = parse_endpoint(*flags.rdzv_endpoint, kRendezvousPort);
    for (const auto& [name, given] :
         {std::pair("master-addr", &flags.master_addr), {"master-port", &flags.master_port}})
      if (*given)
        options.notes.push_back(
            fmt::format("--{} has no effect with the backend c10d: --rdzv-endpoint names the "
                        "rendezvous",
                        name));
    return;
  }
  if (!options.node_rank) options.node_rank = 0;
  if (flags.rdzv_endpoint) {
    options.rdzv_endpoint = parse_endpoint(*flags.rdzv_endpoint, kTransportPort);
  } else if (flags.master_addr || flags.master_port) {
    const std::string port = flags.master_port.value_or(fmt::format("{}", kTransportPort));
    options.rdzv_endpoint = {flags.master_addr.value_or("127.0.0.1"),
                             static_cast<std::uint16_t>(bounded("--master-port", port, 0, 65535))};
  }
}

}  // namespace

void set_nnodes(AgentOptions& options, const std::string& text) {
  const std::size_t colon = text.find(':');
  options.min_nodes = parse_node_count(std::string_view(text).substr(0, colon), text);
  options.max_nodes = colon == std::string::npos
                          ? options.min_nodes
                          : parse_node_count(std::string_view(text).substr(colon + 1), text);
}

void set_rdzv_conf(AgentOptions& options, const std::string& text) {
  RdzvConf conf;
  TorchConf torch(options);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos)
      refuse(fmt::format("--rdzv_conf: found \"{}\", expected key=value,...", one));
    const std::string_view key = one.substr(0, equals);
    const std::string_view value = one.substr(equals + 1);
    if (torch.set(key, value)) continue;
    if (std::ranges::find(kRdzvConfKeys, key) == kRdzvConfKeys.end()) refuse_key(key);
    if (const Status taken = set_rdzv_conf(conf, key, value); !taken.ok())
      refuse("--rdzv_conf: " + taken.error().message);
  }
  if (const Status usable = check(conf); !usable.ok())
    refuse("--rdzv_conf: " + usable.error().message);
  options.tls = conf.tls;
  if (const auto timeout = conf.heartbeat_timeout())
    options.rendezvous.heartbeat_timeout = *timeout;
}

void set_interface(AgentOptions& options, const std::string& name) {
  options.local_addr = interface_address(name).or_throw();
}

void set_port_range(AgentOptions& options, const std::string& text) {
  const std::size_t hyphen = std::min(text.find('-'), text.size());
  const int first = parse_number<int>(std::string_view(text).substr(0, hyphen)).value_or(0);
  const int last =
      parse_number<int>(std::string_view(text).substr(std::min(hyphen + 1, text.size())))
          .value_or(0);
  if (first < 1 || last > 65535 || last < first)
    refuse(fmt::format("--port-range is \"{}\", expected FIRST-LAST, ports from 1 to 65535", text));
  options.ports = PortRange{static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
}

void set_torchrun_options(AgentOptions& options, const launch::TorchrunOptions& flags) {
  options.notes = launch::unused_options(flags);
  if (flags.nnodes) set_nnodes(options, *flags.nnodes);
  if (flags.nproc_per_node) set_processes(options, *flags.nproc_per_node);
  if (flags.rdzv_conf) set_rdzv_conf(options, *flags.rdzv_conf);
  set_rendezvous(options, flags);
  if (flags.rdzv_id && !flags.standalone) options.rdzv_id = *flags.rdzv_id;
  if (flags.max_restarts)
    options.max_restarts = bounded("--max-restarts", *flags.max_restarts, 0, 1000000);
  if (flags.shutdown_timeout)
    options.grace_period = std::chrono::seconds(
        bounded("--shutdown-timeout", *flags.shutdown_timeout, 0, kMaxShutdownSeconds));
  if (flags.local_addr) options.local_addr = *flags.local_addr;
  if (flags.role) options.role = *flags.role;
  if (flags.log_dir) options.logs.directory = *flags.log_dir;
  if (flags.redirects) options.logs.redirects = parse_streams("--redirects", *flags.redirects);
  if (flags.tee) options.logs.tee = parse_streams("--tee", *flags.tee);
  if (flags.local_ranks_filter) {
    options.logs.shown_ranks.emplace();
    std::string_view rest = *flags.local_ranks_filter;
    while (!rest.empty()) {
      const std::string part(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      options.logs.shown_ranks->insert(
          bounded("--local-ranks-filter", part, 0, rendezvous::kMaxLocalRank));
    }
  }
}

void complete_options(AgentOptions& options, const GetVariable& environment) {
  const SessionSettings given = settings_from_environment(environment);
  if (given.coordinator) {
    if (options.max_nodes > 1 || options.rdzv_endpoint)
      options.notes.push_back(fmt::format(
          "the rendezvous flags have no effect: {} names the rendezvous", env::kRendezvous));
    options.external_rendezvous = true;
    options.worker_index = given.process.worker_index;
    options.min_nodes = options.max_nodes = 1;
    options.node_rank = 0;
  }
  if (options.command.empty()) refuse("agent: no command is given after the flags");
  if (options.nproc_per_node < 1 || options.nproc_per_node > rendezvous::kMaxLocalRank + 1)
    refuse(fmt::format("--nproc_per_node is {}, expected 1 to {}", options.nproc_per_node,
                       rendezvous::kMaxLocalRank + 1));
  if (options.min_nodes > options.max_nodes)
    refuse(fmt::format("--nnodes: the minimum {} is above the maximum {}", options.min_nodes,
                       options.max_nodes));
  if (options.max_nodes * options.nproc_per_node > rendezvous::kMaxWorld)
    refuse(fmt::format("--nnodes x --nproc_per_node is {}, expected at most {}",
                       options.max_nodes * options.nproc_per_node, rendezvous::kMaxWorld));
  if (options.node_rank && (*options.node_rank < 0 || *options.node_rank >= options.max_nodes))
    refuse(fmt::format("--node_rank is {}, expected 0 to {} (below --nnodes)", *options.node_rank,
                       options.max_nodes - 1));
  if (options.max_restarts < 0)
    refuse(fmt::format("--max_restarts is {}, expected 0 or more", options.max_restarts));
  if (!options.rdzv_id.empty() && !rendezvous::is_job_uid(options.rdzv_id))
    refuse(fmt::format("--rdzv_id is \"{}\", expected letters, digits, '-', '_', '.' and ':'",
                       options.rdzv_id));
  if (options.max_nodes == 1 || (options.serving == Serving::kAlways && options.rdzv_key)) return;
  if (!options.rdzv_endpoint || options.rdzv_endpoint->host.empty() ||
      options.rdzv_endpoint->port == 0)
    refuse(
        "--rdzv_endpoint is missing, expected host:port of the first host with --nnodes above 1");
  if (options.rdzv_id.empty()) options.rdzv_id = kUnnamedJob;
  if (options.rdzv_key_file.empty() && !options.rdzv_key)
    refuse(
        "--rdzv_key_file is missing, expected a copy of the same file on all hosts with --nnodes "
        "above 1, or --hostfile");
}

}  // namespace tilewright::elastic
