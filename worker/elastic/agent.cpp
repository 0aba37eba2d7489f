#include "worker/elastic/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/base/exit_codes.h"
#include "common/base/output_queue.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/process/child_process.h"
#include "worker/elastic/host_rendezvous.h"
#include "worker/elastic/line_prefixer.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

// How long a membership epoch waits for a restarted process, in addition to the restart delay.
constexpr Duration kRestartTimeout = std::chrono::seconds(60);
// How long the host that serves the rendezvous keeps serving it for the processes of other hosts
// after its own have finished.
constexpr Duration kOtherHostsTimeout = std::chrono::seconds(60);
// And after newer processes have replaced its own: the rest of the job.
constexpr Duration kReplacedTimeout = std::chrono::days(3650);

// One local rank: its process, its output and its next restart.
struct LocalWorker {
  explicit LocalWorker(const std::string& prefix) : output(prefix), error(prefix) {}
  std::unique_ptr<ChildProcess> process;
  LinePrefixer output, error;
  std::unique_ptr<ProcessLogs> logs;  // null: no stream goes to a file
  std::optional<MonotonicTime> restart_at;
  int failure_code = 0;  // of the last exit that a restart follows
};

class Agent {
 public:
  Agent(const AgentOptions& options, const StopSignals& signals, const std::shared_ptr<Logger>& log)
      : options_(options), signals_(signals), log_(log), rendezvous_(options, signals, log) {
    for (const std::string& note : options_.notes) log_->info("agent: {}", note);
    for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank)
      local_workers_.emplace_back(fmt::format("[{} {}.{}] ", options_.role, index(), local_rank));
    if (options_.logs.redirects.any() || options_.logs.tee.any()) {
      run_directory_ = create_run_directory(options_.logs, rendezvous_.job_uid());
      log_->info("agent: output of the processes is in {}", run_directory_.string());
    }
    if (options_.ports) transport_port_ = choose_transport_port();
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
      if (!stopping_ && control_closed()) {
        log_->info("agent: standard input was closed; stopping the processes");
        stop_all(SIGTERM, static_cast<int>(ExitCode::kTerminated));
      }
      if (kill_at_ && monotonic_now() >= *kill_at_) {
        log_->warn("agent: killing the processes that have not stopped");
        for (LocalWorker& worker : local_workers_)
          if (worker.process) worker.process->signal_group(SIGKILL);
        kill_at_.reset();
      }
    }
    if (exit_code_ == 0 || replaced_) {
      rendezvous_.wait_for_other_hosts(replaced_ ? kReplacedTimeout : kOtherHostsTimeout,
                                       signals_.cancel_token());
    }
    return exit_code_;
  }

 private:
  int index() const { return rendezvous_.worker_index(); }

  // The first of consecutive free ports, one for each process.
  std::uint16_t choose_transport_port() const {
    const auto [first, last] = *options_.ports;
    const int n = options_.nproc_per_node;
    const auto port = find_free_ports(first, last, n, index() * n);
    if (!port)
      throw Failure(ExitCode::kUsage,
                    fmt::format("--port-range: found no {} consecutive free ports from {} to {}", n,
                                first, last));
    return *port;
  }

  // Whether the program that started this agent over a pipe has closed it.
  bool control_closed() const {
    if (options_.control_fd < 0) return false;
    std::array<char, 256> ignored;
    pollfd ready{options_.control_fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 1 &&
           read(options_.control_fd, ignored.data(), ignored.size()) == 0;
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
    if (transport_port_ != 0) set(env::kTransportPort, transport_port_);
    if (options_.local_addr) result[env::kTransportAddress] = *options_.local_addr;
    if (options_.external_rendezvous) return result;
    set(env::kJoinTimeout,
        static_cast<int>(std::chrono::ceil<std::chrono::seconds>(options_.rdzv_timeout).count()));
    // Nominal values, for programs that read them; the rendezvous assigns the actual ones.
    set(env::kRank, index() * n + static_cast<int>(local_rank));
    set(env::kWorldSize, options_.max_nodes * n);
    // Rank 0 is a process of host 0; the processes of other hosts follow its output directory.
    if (index() == 0 && environment_variable(env::kLaunchTime).empty())
      result[env::kLaunchTime] = fmt::format("{}", launch_time_);
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
    local_workers_[i].logs = open_logs(i);
    local_workers_[i].process =
        std::make_unique<ChildProcess>(ChildProcess::start(command).or_throw());
    log_->debug("agent: process {} is {}", i, local_workers_[i].process->pid());
  }

  // The logs of the present attempt. A restart continues without them, because an error would end
  // the other processes.
  std::unique_ptr<ProcessLogs> open_logs(std::size_t i) const {
    if (run_directory_.empty()) return nullptr;
    try {
      return std::make_unique<ProcessLogs>(options_.logs, run_directory_, restarts_,
                                           static_cast<int>(i));
    } catch (const Failure& failure) {
      if (restarts_ == 0) throw;
      log_->warn("agent: {}; the output of process {} is not stored", failure.what(), i);
      return nullptr;
    }
  }

  // A process that cannot be started counts as one that failed again: the machine may have too many
  // processes for a moment.
  void restart(LocalWorker& worker, std::size_t i) {
    try {
      start(i);
    } catch (const Failure& failure) {
      handle_failure(worker, worker.failure_code,
                     fmt::format("process {} of worker {} cannot be restarted: {}", i, index(),
                                 failure.what()));
    }
  }

  void wait() {
    std::vector<pollfd> fds;
    if (!stopping_) {
      fds.push_back({signals_.cancel_token().fd(), POLLIN, 0});
      fds.push_back({options_.control_fd, POLLIN, 0});
    }
    MonotonicTime wake = kill_at_.value_or(monotonic_now() + kLongestWait);
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
    if (worker.restart_at && monotonic_now() >= *worker.restart_at) restart(worker, i);
    if (!worker.process) return;
    // Checked before the output is read, so that the pipes hold everything it wrote.
    const std::optional<int> code = worker.process->poll_exit();
    forward_output(worker, i, code.has_value());
    if (!code) return;
    worker.process.reset();
    handle_exit(worker, i, *code);
  }

  void forward_output(LocalWorker& worker, std::size_t i, bool drain) {
    std::string output, error;
    do {
      output = worker.process->read_output();
      error = worker.process->read_error();
      forward(worker, i, Stream::kOutput, output);
      forward(worker, i, Stream::kError, error);
    } while (drain && !(output.empty() && error.empty()));
    if (!drain) return;
    output_.write(options_.output_fd, worker.output.flush());
    output_.write(options_.error_fd, worker.error.flush());
  }

  void forward(LocalWorker& worker, std::size_t i, Stream stream, const std::string& bytes) {
    if (bytes.empty()) return;
    if (worker.logs) worker.logs->write(stream, bytes, *log_);
    if (!ProcessLogs::is_shown(options_.logs, static_cast<int>(i), stream)) return;
    const bool is_output = stream == Stream::kOutput;
    output_.write(is_output ? options_.output_fd : options_.error_fd,
                  (is_output ? worker.output : worker.error).feed(bytes));
  }

  void handle_exit(LocalWorker& worker, std::size_t i, int code) {
    if (code == 0 || stopping_) return;
    if (code == static_cast<int>(ExitCode::kReplaced)) return end_replaced(i);
    rendezvous_.process_exited(static_cast<int>(i));
    handle_failure(worker, code,
                   fmt::format("process {} of worker {} exited with code {}{}", i, index(), code,
                               code > kSignalExitCodeBase && code <= kSignalExitCodeBase + 64
                                   ? fmt::format(" (signal {})", code - kSignalExitCodeBase)
                                   : ""));
  }

  // Another agent has started the same process of the job, which continues with that one: this is
  // no failure, and a restart would replace the newer process in turn.
  void end_replaced(std::size_t i) {
    log_->error(
        "agent: a newer process has replaced process {} of worker {}; {} and the job "
        "continues with the newer process{}",
        i, index(),
        rendezvous_.serves() ? "this agent serves the rendezvous until the job has ended"
                             : "this agent ends",
        options_.node_rank ? " (expected another --node-rank on each host)" : "");
    replaced_ = true;
    stop_all(SIGTERM, static_cast<int>(ExitCode::kReplaced));
  }

  // Restarts the process after a delay, or stops all processes.
  void handle_failure(LocalWorker& worker, int code, const std::string& what) {
    if (code >= kFirstRetryableExitCode && restarts_ < options_.max_restarts &&
        !signals_.stopped()) {
      const Duration delay = std::min(options_.restart_delay * (1 << std::min(restarts_, 16)),
                                      options_.restart_delay_limit);
      ++restarts_;
      log_->warn("agent: {}; restart {} of {}", what, restarts_, options_.max_restarts);
      worker.restart_at = monotonic_now() + delay;
      worker.failure_code = code;
      rendezvous_.expect_restart(delay + kRestartTimeout);
      return;
    }
    if (signals_.stopped()) return;
    const bool is_permanent = code < kFirstRetryableExitCode;
    log_->error("agent: {}, {}", what, is_permanent ? "a permanent failure" : "no restarts left");
    rendezvous_.fail(fmt::format("the job failed: {}", what), is_permanent);
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
  const std::int64_t launch_time_ =
      std::chrono::duration_cast<std::chrono::seconds>(wall_now().time_since_epoch()).count();
  std::filesystem::path run_directory_;  // of the processes' logs; empty: no logs
  std::uint16_t transport_port_ = 0;     // of local rank 0; 0: any free port
  int restarts_ = 0;
  bool stopping_ = false;
  bool replaced_ = false;  // a newer process has replaced one of this agent
  int exit_code_ = 0;
  std::optional<MonotonicTime> kill_at_;
};

}  // namespace

int run_agent(const AgentOptions& options, const StopSignals& signals,
              const std::shared_ptr<Logger>& log) {
  return Agent(options, signals, log).run();
}

}  // namespace tilewright::elastic
