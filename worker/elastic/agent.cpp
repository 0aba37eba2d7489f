#include "worker/elastic/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "common/base/output_queue.h"
#include "common/contract/environment.h"
#include "common/contract/rdzv_conf.h"
#include "common/process/child_process.h"
#include "common/rendezvous/messages.h"
#include "worker/elastic/host_rendezvous.h"
#include "worker/elastic/line_prefixer.h"

namespace tilewright::elastic {
namespace {

// Exit codes from here on are retryable (common/base/exit_codes.h).
constexpr int kFirstRetryable = 128;
// How long a membership epoch waits for a restarted process, in addition to the restart delay.
constexpr Duration kRestartTimeout = std::chrono::seconds(60);
// How long the first host keeps serving the rendezvous for the processes of other hosts.
constexpr Duration kOtherHostsTimeout = std::chrono::seconds(60);

// One local rank: its process, its output and its next restart.
struct LocalWorker {
  explicit LocalWorker(const std::string& prefix) : output(prefix), error(prefix) {}
  std::unique_ptr<ChildProcess> process;
  LinePrefixer output, error;
  std::optional<MonotonicTime> restart_at;
};

class Agent {
 public:
  Agent(const AgentOptions& options, const StopSignals& signals, const std::shared_ptr<Logger>& log)
      : options_(options), signals_(signals), log_(log), rendezvous_(options, log) {
    for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank)
      local_workers_.emplace_back(fmt::format("[worker {}.{}] ", index(), local_rank));
  }

  int run() {
    for (std::size_t i = 0; i < local_workers_.size(); ++i) start(i);
    while (!finished()) {
      wait();
      for (std::size_t i = 0; i < local_workers_.size(); ++i) poll_worker(i);
      if (signals_.stopped() && !stopping_) {
        log_->info("agent: stopping the processes");
        stop_all(signals_.number(), static_cast<int>(*signals_.exit_code()));
      }
      if (kill_at_ && monotonic_now() >= *kill_at_) {
        log_->warn("agent: killing the processes that have not stopped");
        for (LocalWorker& worker : local_workers_)
          if (worker.process) worker.process->signal_group(SIGKILL);
        kill_at_.reset();
      }
    }
    if (exit_code_ == 0)
      rendezvous_.wait_for_other_hosts(kOtherHostsTimeout, signals_.cancel_token());
    return exit_code_;
  }

 private:
  int index() const {
    return options_.external_rendezvous ? options_.worker_index : options_.node_rank;
  }

  bool finished() const {
    return std::ranges::all_of(local_workers_,
                               [](const LocalWorker& s) { return !s.process && !s.restart_at; });
  }

  std::map<std::string, std::string> environment(std::size_t local_rank) const {
    const int n = options_.nproc_per_node;
    std::map<std::string, std::string> result = rendezvous_.environment();
    const auto set = [&](const char* name, int value) { result[name] = fmt::format("{}", value); };
    set(env::kWorkerIndex, index());
    set(env::kLocalRank, static_cast<int>(local_rank));
    set(env::kLocalWorldSize, n);
    set(env::kTorchelasticRestartCount, restarts_);
    set(env::kTorchelasticMaxRestarts, options_.max_restarts);
    // In a pod the operator sets the variable, unless --rdzv_conf sets it too.
    if (options_.tls || !options_.external_rendezvous)
      result[env::kTls] = options_.tls ? "true" : "false";
    if (options_.external_rendezvous) return result;
    // Nominal values, for programs that read them; the rendezvous assigns the actual ones.
    set(env::kRank, index() * n + static_cast<int>(local_rank));
    set(env::kWorldSize, options_.max_nodes * n);
    set(env::kGroupRank, index());
    set(env::kGroupWorldSize, options_.max_nodes);
    return result;
  }

  void start(std::size_t i) {
    local_workers_[i].restart_at.reset();
    ChildCommand command;
    command.program = options_.command.front();
    command.arguments.assign(options_.command.begin() + 1, options_.command.end());
    command.environment = environment_with_overrides(environment(i));
    command.separate_error = true;
    local_workers_[i].process =
        std::make_unique<ChildProcess>(ChildProcess::start(command).or_throw());
    log_->debug("agent: process {} is {}", i, local_workers_[i].process->pid());
  }

  void wait() {
    std::vector<pollfd> fds;
    if (!stopping_) fds.push_back({signals_.cancel_token().fd(), POLLIN, 0});
    MonotonicTime wake = kill_at_.value_or(monotonic_now() + std::chrono::hours(1));
    for (const LocalWorker& worker : local_workers_) {
      if (worker.restart_at) wake = std::min(wake, *worker.restart_at);
      if (!worker.process) continue;
      // A closed pipe has descriptor -1, which poll() ignores.
      for (const int fd :
           {worker.process->exit_fd(), worker.process->output_fd(), worker.process->error_fd()})
        fds.push_back({fd, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), net::poll_timeout(wake));
  }

  void poll_worker(std::size_t i) {
    LocalWorker& worker = local_workers_[i];
    if (worker.restart_at && monotonic_now() >= *worker.restart_at) start(i);
    if (!worker.process) return;
    // Checked before the output is read, so that the pipes hold everything it wrote.
    const std::optional<int> code = worker.process->poll_exit();
    forward_output(worker, code.has_value());
    if (!code) return;
    worker.process.reset();
    handle_exit(worker, i, *code);
  }

  void forward_output(LocalWorker& worker, bool drain) {
    std::string output, error;
    do {
      output = worker.process->read_output();
      error = worker.process->read_error();
      output_.write(options_.output_fd, worker.output.feed(output));
      output_.write(options_.error_fd, worker.error.feed(error));
    } while (drain && !(output.empty() && error.empty()));
    if (!drain) return;
    output_.write(options_.output_fd, worker.output.flush());
    output_.write(options_.error_fd, worker.error.flush());
  }

  void handle_exit(LocalWorker& worker, std::size_t i, int code) {
    if (code == 0 || stopping_) return;
    rendezvous_.process_exited(static_cast<int>(i));
    const std::string what =
        fmt::format("process {} of worker {} exited with code {}{}", i, index(), code,
                    code > kFirstRetryable && code <= kFirstRetryable + 64
                        ? fmt::format(" (signal {})", code - kFirstRetryable)
                        : "");
    if (code >= kFirstRetryable && restarts_ < options_.max_restarts && !signals_.stopped()) {
      const Duration delay = std::min(options_.restart_delay * (1 << std::min(restarts_, 16)),
                                      options_.restart_delay_limit);
      ++restarts_;
      log_->warn("agent: {}; restart {} of {}", what, restarts_, options_.max_restarts);
      worker.restart_at = monotonic_now() + delay;
      rendezvous_.expect_restart(delay + kRestartTimeout);
      return;
    }
    if (signals_.stopped()) return;
    log_->error("agent: {}, {}", what,
                code < kFirstRetryable ? "a permanent failure" : "no restarts left");
    rendezvous_.fail(fmt::format("the job failed: {}", what));
    stop_all(SIGTERM, code);
  }

  void stop_all(int signal, int result) {
    stopping_ = true;
    exit_code_ = result;
    kill_at_ = monotonic_now() + options_.grace_period;
    for (LocalWorker& worker : local_workers_) {
      worker.restart_at.reset();
      if (worker.process) worker.process->signal_group(signal);
    }
  }

  const AgentOptions& options_;
  const StopSignals& signals_;
  const std::shared_ptr<Logger> log_;
  HostRendezvous rendezvous_;
  OutputQueue output_;
  std::vector<LocalWorker> local_workers_;
  int restarts_ = 0;
  bool stopping_ = false;
  int exit_code_ = 0;
  std::optional<MonotonicTime> kill_at_;
};

int parse_node_count(std::string_view text, const std::string& whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > rendezvous::kMaxWorld)
    throw Failure(ExitCode::kUsage,
                  fmt::format("--nnodes is \"{}\", expected N or MIN:MAX, each from 1 to {}", whole,
                              rendezvous::kMaxWorld));
  return value;
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
  if (const Status taken = parse_rdzv_conf(conf, text); !taken.ok())
    throw Failure(ExitCode::kUsage, "--rdzv_conf: " + taken.error().message);
  options.tls = conf.tls;
}

void complete_options(AgentOptions& options, const Environment& environment) {
  const auto refuse = [](const std::string& sentence) {
    throw Failure(ExitCode::kUsage, sentence);
  };
  if (!options.rdzv_endpoint && options.max_nodes == 1) {
    const SessionSettings given = settings_from_environment(environment);
    if (given.coordinator) {
      options.external_rendezvous = true;
      options.worker_index = given.process.worker_index;
    }
  }
  if (options.command.empty()) refuse("agent: no command is given after --");
  if (options.nproc_per_node < 1 || options.nproc_per_node > rendezvous::kMaxLocalRank + 1)
    refuse(fmt::format("--nproc_per_node is {}, expected 1 to {}", options.nproc_per_node,
                       rendezvous::kMaxLocalRank + 1));
  if (options.min_nodes > options.max_nodes)
    refuse(fmt::format("--nnodes: the minimum {} is above the maximum {}", options.min_nodes,
                       options.max_nodes));
  if (options.max_nodes * options.nproc_per_node > rendezvous::kMaxWorld)
    refuse(fmt::format("--nnodes x --nproc_per_node is {}, expected at most {}",
                       options.max_nodes * options.nproc_per_node, rendezvous::kMaxWorld));
  if (options.node_rank < 0 || options.node_rank >= options.max_nodes)
    refuse(fmt::format("--node_rank is {}, expected 0 to {} (below --nnodes)", options.node_rank,
                       options.max_nodes - 1));
  if (options.max_restarts < 0)
    refuse(fmt::format("--max_restarts is {}, expected 0 or more", options.max_restarts));
  if (!options.rdzv_id.empty() && !rendezvous::is_job_uid(options.rdzv_id))
    refuse(fmt::format("--rdzv_id is \"{}\", expected letters, digits, '-', '_', '.' and ':'",
                       options.rdzv_id));
  if (options.max_nodes == 1) return;
  if (!options.rdzv_endpoint || options.rdzv_endpoint->host.empty() ||
      options.rdzv_endpoint->port == 0)
    refuse(
        "--rdzv_endpoint is missing, expected host:port of the first host with --nnodes above 1");
  if (options.rdzv_id.empty())
    refuse("--rdzv_id is missing, expected the same on all hosts with --nnodes above 1");
  if (options.rdzv_key_file.empty())
    refuse(
        "--rdzv_key_file is missing, expected a copy of the same file on all hosts with --nnodes "
        "above 1");
}

int run_agent(const AgentOptions& options, const StopSignals& signals,
              const std::shared_ptr<Logger>& log) {
  return Agent(options, signals, log).run();
}

}  // namespace tilewright::elastic
