#include "worker/elastic/host_group.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "common/base/exit_codes.h"
#include "common/base/output_queue.h"
#include "common/base/printable.h"
#include "worker/elastic/host_rendezvous.h"
#include "worker/elastic/line_prefixer.h"
#include "worker/elastic/local_host.h"
#include "worker/elastic/remote_host.h"

namespace tilewright::elastic {
namespace {

constexpr const char* kStarted = "tilewright-agent started ";
// Longer than the connect timeout of ssh and the start of a program from a network file system.
constexpr Duration kStartTimeout = std::chrono::seconds(60);
constexpr Duration kCheckTimeout = std::chrono::seconds(60);
// For the names of all hosts: an unreachable resolver takes 10 s or more for each.
constexpr Duration kLookupTimeout = std::chrono::seconds(30);
// In addition to the grace period of the agents.
constexpr Duration kStopMargin = std::chrono::seconds(5);
constexpr std::size_t kMaxUnstartedBytes = 64 << 10;

// The last line that is not empty, without control characters.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  const std::size_t newline = text.rfind('\n');
  return printable(
      std::string(newline == std::string_view::npos ? text : text.substr(newline + 1)));
}

void throw_if_stopped(const StopSignals& signals) {
  if (const auto code = signals.exit_code())
    throw Failure(*code, "stopped while looking up the hosts");
}

// The agent of one host.
struct HostAgent {
  explicit HostAgent(Host of)
      : host(std::move(of)),
        output(fmt::format("[{}] ", host.name)),
        error(fmt::format("[{}] ", host.name)) {}
  Host host;
  std::unique_ptr<ChildProcess> process;
  LinePrefixer output, error;
  bool started = false;      // its first line has arrived
  std::string early_output;  // before that: greetings of the host's shell
  std::string early_error;   // before that: ssh's messages
  std::optional<int> exit_code;
};

class HostGroup {
 public:
  HostGroup(HostGroupOptions options, const StopSignals& signals,
            const std::shared_ptr<Logger>& log)
      : options_(prepare(std::move(options), signals)),
        signals_(signals),
        log_(log),
        rendezvous_(options_.agent, signals, log) {
    for (const Host& host : options_.hosts) agents_.emplace_back(host);
  }

  int run() {
    for (const std::string& note : options_.agent.notes) log_->info("agent: {}", note);
    const net::SecretKey key = net::SecretKey::from_file(rendezvous_.key_file()).or_throw();
    for (std::size_t i = 0; i < agents_.size(); ++i) start(i, key);
    start_deadline_ = monotonic_now() + kStartTimeout;
    while (
        std::ranges::any_of(agents_, [](const HostAgent& one) { return one.process != nullptr; })) {
      wait();
      for (std::size_t i = 0; i < agents_.size(); ++i) serve(i);
      judge_start();
      if (signals_.stopped() && !stopping_) {
        log_->info("agent: stopping the agents of all hosts");
        stop(static_cast<int>(*signals_.exit_code()));
      }
      if (kill_at_ && monotonic_now() >= *kill_at_) {
        log_->warn("agent: ending the connections to hosts whose agents have not stopped");
        for (HostAgent& agent : agents_)
          if (agent.process) agent.process->signal_group(SIGKILL);
        kill_at_.reset();
      }
    }
    return exit_code_;
  }

 private:
  // This process serves the rendezvous and has no processes of its own.
  static HostGroupOptions prepare(HostGroupOptions options, const StopSignals& signals) {
    AgentOptions& agent = options.agent;
    agent.serving = Serving::kAlways;
    agent.node_rank = 0;
    if (!agent.rdzv_endpoint)
      agent.rdzv_endpoint = net::Address{advertised_address(options, signals), 0};
    return options;
  }

  // On the way to the first host whose address is known.
  static std::string advertised_address(const HostGroupOptions& options,
                                        const StopSignals& signals) {
    if (options.agent.local_addr) return *options.agent.local_addr;
    std::optional<Error> problem;
    const net::Wait wait = net::within(kLookupTimeout, &signals.cancel_token());
    for (const Host& host : options.hosts) {
      if (host.is_this_host) continue;
      if (problem && monotonic_now() >= wait.deadline) break;
      const auto name = ssh_host_name(options.ssh, host.name);
      const auto address =
          name.ok() ? address_towards(*name, wait) : Result<std::string>(name.error());
      throw_if_stopped(signals);
      if (address.ok()) return *address;
      if (!problem) problem = address.error();
    }
    if (problem) throw Failure(*problem);
    return "127.0.0.1";
  }

  RemoteCommand command(std::size_t i) const {
    const AgentOptions& agent = options_.agent;
    RemoteCommand result{options_.program, {"agent"}, std::filesystem::current_path()};
    const auto add = [&](const char* flag, const auto& value) {
      result.arguments.push_back(fmt::format("--{}={}", flag, value));
    };
    add("nnodes", agent.min_nodes == agent.max_nodes
                      ? fmt::format("{}", agent.max_nodes)
                      : fmt::format("{}:{}", agent.min_nodes, agent.max_nodes));
    add("nproc-per-node", agent.nproc_per_node);
    add("node-rank", i);
    add("rdzv-backend", "c10d");
    add("rdzv-endpoint", net::to_string(rendezvous_.address()));
    add("rdzv-id", rendezvous_.job_uid());
    add("rdzv-conf",
        fmt::format("is_host=false,tls={},join_timeout={}", agent.tls ? "true" : "false",
                    std::chrono::duration<double>(agent.rdzv_timeout).count()));
    add("rdzv-key-file", "-");
    result.arguments.insert(result.arguments.end(), options_.flags.begin(), options_.flags.end());
    result.arguments.emplace_back("--");
    // The first word is the program.
    result.arguments.insert(result.arguments.end(), agent.command.begin() + 1, agent.command.end());
    return result;
  }

  void start(std::size_t i, const net::SecretKey& key) {
    HostAgent& agent = agents_[i];
    const RemoteCommand what = command(i);
    agent.process = std::make_unique<ChildProcess>(
        ChildProcess::start(agent.host.is_this_host ? on_this_host(what)
                                                    : over_ssh(options_.ssh, agent.host.name, what))
            .or_throw());
    std::vector<std::string> lines = {
        {reinterpret_cast<const char*>(key.bytes().data()), key.bytes().size()}};
    lines.insert(lines.end(), options_.variables.begin(), options_.variables.end());
    lines.emplace_back();
    for (const std::string& line : lines)
      TW_CHECK(agent.process->write_input(line + "\n"), "the pipe takes no line of {} bytes",
               line.size());
  }

  void wait() {
    std::vector<pollfd> fds;
    if (!stopping_) fds.push_back({signals_.cancel_token().fd(), POLLIN, 0});
    MonotonicTime wake = kill_at_.value_or(monotonic_now() + kLongestWait);
    if (!start_judged_ && !stopping_) wake = std::min(wake, start_deadline_);
    for (const HostAgent& agent : agents_) {
      if (!agent.process) continue;
      for (const int fd :
           {agent.process->exit_fd(), agent.process->output_fd(), agent.process->error_fd()})
        fds.push_back({fd, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), net::poll_timeout(wake));
  }

  void serve(std::size_t i) {
    HostAgent& agent = agents_[i];
    if (!agent.process) return;
    // Checked before the output is read, so that the pipes hold everything it wrote.
    agent.exit_code = agent.process->poll_exit();
    std::string output, error;
    do {
      output = agent.process->read_output();
      error = agent.process->read_error();
      take_output(agent, output);
      take_error(agent, error);
    } while (agent.exit_code && !(output.empty() && error.empty()));
    if (!agent.exit_code) return;
    output_.write(options_.agent.output_fd, agent.output.flush());
    output_.write(options_.agent.error_fd, agent.error.flush());
    agent.process.reset();
    handle_exit(agent, static_cast<int>(i));
  }

  void take_output(HostAgent& agent, std::string bytes) {
    if (!agent.started) {
      agent.early_output += bytes;
      const std::size_t at = agent.early_output.find(kStarted);
      const std::size_t end = agent.early_output.find('\n', at == std::string::npos ? 0 : at);
      if (at == std::string::npos || end == std::string::npos) {
        if (agent.early_output.size() > kMaxUnstartedBytes) agent.early_output.clear();
        return;
      }
      const std::size_t begin = at + std::string_view(kStarted).size();
      check_version(agent, agent.early_output.substr(begin, end - begin));
      agent.started = true;
      bytes = agent.early_output.substr(end + 1);
      agent.early_output.clear();
      output_.write(options_.agent.error_fd, agent.error.feed(agent.early_error));
      agent.early_error.clear();
    }
    output_.write(options_.agent.output_fd, agent.output.feed(bytes));
  }

  void take_error(HostAgent& agent, const std::string& bytes) {
    if (agent.started) {
      output_.write(options_.agent.error_fd, agent.error.feed(bytes));
    } else if (agent.early_error.size() < kMaxUnstartedBytes) {
      agent.early_error += bytes;
    }
  }

  void check_version(const HostAgent& agent, const std::string& found) {
    if (found == options_.version || stopping_) return;
    log_->error("agent: host {}: found version {}, expected {} as on this host", agent.host.name,
                printable(found), options_.version);
    stop(static_cast<int>(ExitCode::kUnsupported));
  }

  void handle_exit(const HostAgent& agent, int index) {
    const int code = *agent.exit_code;
    if (code == 0 || stopping_) return;
    if (!agent.started) {
      log_->error("agent: host {} {}", agent.host.name,
                  describe_failed_start(command(static_cast<std::size_t>(index)), code,
                                        last_line(agent.early_error)));
      return;  // judge_start() decides when all hosts have answered
    }
    if (code == static_cast<int>(ExitCode::kReplaced)) {
      log_->warn(
          "agent: newer processes have replaced those of host {}, and the job continues with "
          "them",
          agent.host.name);
      return;
    }
    rendezvous_.host_exited(index);
    const bool lost = code == kSshFailed;
    const std::string what =
        lost ? fmt::format("host {} was lost: the connection of ssh ended", agent.host.name)
             : fmt::format("the agent of host {} exited with code {}", agent.host.name, code);
    if (code >= kFirstRetryableExitCode && count_left() >= options_.agent.min_nodes) {
      log_->warn("agent: {}; {} of {} hosts are left", what, count_left(), agents_.size());
      return;
    }
    log_->error("agent: {}; ending the agents of all hosts", what);
    rendezvous_.fail(fmt::format("the job failed: {}", what));
    stop(lost ? static_cast<int>(ExitCode::kPeerLost) : code);
  }

  // Once every host has started or failed to: are there enough of them?
  void judge_start() {
    if (start_judged_ || stopping_) return;
    const bool late = monotonic_now() >= start_deadline_;
    for (HostAgent& agent : agents_) {
      if (agent.started || !agent.process) continue;
      if (!late) return;
      log_->error("agent: host {} did not start the agent within {} s", agent.host.name,
                  std::chrono::duration_cast<std::chrono::seconds>(kStartTimeout).count());
      agent.process->signal_group(SIGKILL);
    }
    start_judged_ = true;
    const auto started = std::ranges::count_if(agents_, &HostAgent::started);
    if (started >= options_.agent.min_nodes) return;
    rendezvous_.fail("the job failed: a host cannot be reached");
    stop(static_cast<int>(ExitCode::kPeerLost));
  }

  // Agents that run or have succeeded.
  int count_left() const {
    return static_cast<int>(std::ranges::count_if(agents_, [](const HostAgent& one) {
      return one.process != nullptr || one.exit_code == 0;
    }));
  }

  // An agent stops when its standard input ends, which also works through ssh.
  void stop(int result) {
    stopping_ = true;
    exit_code_ = result;
    kill_at_ = monotonic_now() + options_.agent.grace_period + kStopMargin;
    for (HostAgent& agent : agents_)
      if (agent.process) agent.process->close_input();
  }

  const HostGroupOptions options_;
  const StopSignals& signals_;
  const std::shared_ptr<Logger> log_;
  HostRendezvous rendezvous_;
  OutputQueue output_;
  std::vector<HostAgent> agents_;
  MonotonicTime start_deadline_;
  bool start_judged_ = false;
  bool stopping_ = false;
  int exit_code_ = 0;
  std::optional<MonotonicTime> kill_at_;
};

// One host of check_hosts().
struct Check {
  std::string name;
  RemoteCommand command;
  std::unique_ptr<ChildProcess> process;
  std::string output, error;
  std::optional<int> code;
};

}  // namespace

std::string started_line(const std::string& version) { return kStarted + version + "\n"; }

std::vector<Host> this_host_first(std::vector<Host> hosts, const StopSignals& signals) {
  const net::Wait wait = net::within(kLookupTimeout, &signals.cancel_token());
  for (Host& host : hosts) {
    const Result<bool> found = is_this_host(host.name, wait);
    throw_if_stopped(signals);
    host.is_this_host = found.ok() && *found;
  }
  std::stable_partition(hosts.begin(), hosts.end(),
                        [](const Host& host) { return host.is_this_host; });
  return hosts;
}

int run_host_group(HostGroupOptions options, const StopSignals& signals,
                   const std::shared_ptr<Logger>& log) {
  return HostGroup(std::move(options), signals, log).run();
}

int check_hosts(const HostGroupOptions& options, const StopSignals& signals, int output_fd) {
  std::vector<Check> checks;
  for (const Host& host : options.hosts) {
    Check check{host.name, {options.program, {"agent", "--check"}, {}}, nullptr, "", "", {}};
    check.command.arguments.insert(check.command.arguments.end(), options.flags.begin(),
                                   options.flags.end());
    check.process = std::make_unique<ChildProcess>(
        ChildProcess::start(host.is_this_host ? on_this_host(check.command)
                                              : over_ssh(options.ssh, host.name, check.command))
            .or_throw());
    checks.push_back(std::move(check));
  }
  const MonotonicTime deadline = monotonic_now() + kCheckTimeout;
  OutputQueue output;
  bool fit = true;
  for (Check& check : checks) {
    while (!check.code && monotonic_now() < deadline && !signals.stopped()) {
      pollfd fds[] = {{check.process->exit_fd(), POLLIN, 0},
                      {check.process->output_fd(), POLLIN, 0},
                      {check.process->error_fd(), POLLIN, 0},
                      {signals.cancel_token().fd(), POLLIN, 0}};
      poll(fds, std::size(fds), net::poll_timeout(deadline));
      check.code = check.process->poll_exit();
      std::string more, more_error;
      do {
        more = check.process->read_output();
        more_error = check.process->read_error();
        if (check.output.size() < kMaxUnstartedBytes) check.output += more;
        if (check.error.size() < kMaxUnstartedBytes) check.error += more_error;
      } while (check.code && !(more.empty() && more_error.empty()));
    }
    if (signals.stopped()) return static_cast<int>(*signals.exit_code());
    std::string line = last_line(check.output);
    const std::string own = "tilewright-worker " + options.version + ",";
    bool good = check.code == 0;
    if (!check.code) {
      line = fmt::format("gave no answer within {} s",
                         std::chrono::duration_cast<std::chrono::seconds>(kCheckTimeout).count());
    } else if (line.find("tilewright-worker ") == std::string::npos) {
      line = describe_failed_start(check.command, *check.code, last_line(check.error));
      good = false;
    } else if (!line.starts_with(own)) {
      line += fmt::format("; expected version {} as on this host", options.version);
      good = false;
    }
    output.write(output_fd, fmt::format("{}: {}{}\n", check.name, good ? "reachable, " : "", line));
    fit = fit && good;
  }
  return fit ? 0 : static_cast<int>(ExitCode::kUnsupported);
}

}  // namespace tilewright::elastic
