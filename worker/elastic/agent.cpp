#include "worker/elastic/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "common/contract/environment.h"
#include "common/contract/rdzv_conf.h"
#include "common/process/child_process.h"
#include "common/rendezvous/messages.h"
#include "worker/elastic/host_rendezvous.h"
#include "worker/elastic/line_prefixer.h"

namespace tilewright::elastic {
namespace {

// Codes from here on may be tried again (common/base/exit_codes.h).
constexpr int kFirstRetryable = 128;
// How long an epoch waits for a process that is started again, beyond the delay before it.
constexpr Duration kRestartPatience = std::chrono::seconds(60);
// How long the first host serves on for the processes of others.
constexpr Duration kOthersLimit = std::chrono::seconds(60);

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = write(fd, text.data(), text.size());
    if (sent < 0 && errno != EINTR) return;  // nobody reads: the work goes on
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// A place for one process, and the process that has it now.
struct Slot {
  explicit Slot(const std::string& prefix) : output(prefix), error(prefix) {}
  std::unique_ptr<ChildProcess> process;
  LinePrefixer output, error;
  std::optional<MonotonicTime> restart_at;
};

class Agent {
 public:
  Agent(const AgentOptions& options, const StopSignals& signals, const std::shared_ptr<Logger>& log)
      : options_(options), signals_(signals), log_(log), rendezvous_(options, log) {
    for (int slot = 0; slot < options_.nproc_per_node; ++slot)
      slots_.emplace_back(fmt::format("[worker {}.{}] ", index(), slot));
  }

  int run() {
    for (std::size_t i = 0; i < slots_.size(); ++i) start(i);
    while (!over()) {
      wait();
      for (std::size_t i = 0; i < slots_.size(); ++i) serve(i);
      if (signals_.stopped() && !ending_) {
        log_->info("agent: stopping the processes");
        end_all(signals_.number(), static_cast<int>(*signals_.exit_code()));
      }
      if (kill_at_ && monotonic_now() >= *kill_at_) {
        log_->warn("agent: killing what has not ended");
        for (Slot& slot : slots_)
          if (slot.process) slot.process->signal_group(SIGKILL);
        kill_at_.reset();
      }
    }
    if (result_ == 0) rendezvous_.await_others(kOthersLimit, signals_.bell());
    return result_;
  }

 private:
  int index() const { return options_.coordinated ? options_.worker_index : options_.node_rank; }

  bool over() const {
    return std::ranges::all_of(slots_, [](const Slot& s) { return !s.process && !s.restart_at; });
  }

  std::map<std::string, std::string> environment(std::size_t slot) const {
    const int n = options_.nproc_per_node;
    std::map<std::string, std::string> result = rendezvous_.environment();
    const auto set = [&](const char* name, int value) { result[name] = fmt::format("{}", value); };
    set(env::kWorkerIndex, index());
    set(env::kLocalRank, static_cast<int>(slot));
    set(env::kLocalWorldSize, n);
    set(env::kTorchelasticRestartCount, restarts_);
    set(env::kTorchelasticMaxRestarts, options_.max_restarts);
    // In a pod the operator has said it already, unless the agent was told, too.
    if (options_.tls || !options_.coordinated) result[env::kTls] = options_.tls ? "true" : "false";
    if (options_.coordinated) return result;
    // Nominal ones, for programs that want them: the rendezvous gives the true ones.
    set(env::kRank, index() * n + static_cast<int>(slot));
    set(env::kWorldSize, options_.max_nodes * n);
    set(env::kGroupRank, index());
    set(env::kGroupWorldSize, options_.max_nodes);
    return result;
  }

  void start(std::size_t i) {
    slots_[i].restart_at.reset();
    ChildCommand command;
    command.program = options_.command.front();
    command.arguments.assign(options_.command.begin() + 1, options_.command.end());
    command.environment = environment_with(environment(i));
    command.separate_error = true;
    slots_[i].process = std::make_unique<ChildProcess>(ChildProcess::start(command).or_throw());
    log_->debug("agent: process {} is {}", i, slots_[i].process->pid());
  }

  void wait() {
    std::vector<pollfd> fds;
    if (!ending_) fds.push_back({signals_.bell().fd(), POLLIN, 0});
    MonotonicTime wake = kill_at_.value_or(monotonic_now() + std::chrono::hours(1));
    for (const Slot& slot : slots_) {
      if (slot.restart_at) wake = std::min(wake, *slot.restart_at);
      if (!slot.process) continue;
      // A pipe at its end is -1, which poll passes over.
      for (const int fd :
           {slot.process->exit_fd(), slot.process->output_fd(), slot.process->error_fd()})
        fds.push_back({fd, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), net::poll_timeout(wake));
  }

  void serve(std::size_t i) {
    Slot& slot = slots_[i];
    if (slot.restart_at && monotonic_now() >= *slot.restart_at) start(i);
    if (!slot.process) return;
    // Before its output: what it wrote until its end is in the pipes then.
    const std::optional<int> code = slot.process->poll_exit();
    pass_on(slot, code.has_value());
    if (!code) return;
    slot.process.reset();
    ended(slot, i, *code);
  }

  void pass_on(Slot& slot, bool to_the_end) {
    std::string output, error;
    do {
      output = slot.process->read_output();
      error = slot.process->read_error();
      write_all(options_.output_fd, slot.output.feed(output));
      write_all(options_.error_fd, slot.error.feed(error));
    } while (to_the_end && !(output.empty() && error.empty()));
    if (!to_the_end) return;
    write_all(options_.output_fd, slot.output.flush());
    write_all(options_.error_fd, slot.error.flush());
  }

  void ended(Slot& slot, std::size_t i, int code) {
    if (code == 0 || ending_) return;
    const std::string what =
        fmt::format("process {} of worker {} ended with exit code {}{}", i, index(), code,
                    code > kFirstRetryable && code <= kFirstRetryable + 64
                        ? fmt::format(" (signal {})", code - kFirstRetryable)
                        : "");
    if (code >= kFirstRetryable && restarts_ < options_.max_restarts && !signals_.stopped()) {
      const Duration delay = std::min(options_.restart_delay * (1 << std::min(restarts_, 16)),
                                      options_.restart_delay_limit);
      ++restarts_;
      log_->warn("agent: {}; restart {} of {}", what, restarts_, options_.max_restarts);
      slot.restart_at = monotonic_now() + delay;
      rendezvous_.expect_restart(delay + kRestartPatience);
      return;
    }
    if (signals_.stopped()) return;
    log_->error("agent: {}, {}", what,
                code < kFirstRetryable ? "which is permanent" : "and no restart is left");
    rendezvous_.fail(fmt::format("the job has failed: {}", what));
    end_all(SIGTERM, code);
  }

  void end_all(int signal, int result) {
    ending_ = true;
    result_ = result;
    kill_at_ = monotonic_now() + options_.grace;
    for (Slot& slot : slots_) {
      slot.restart_at.reset();
      if (slot.process) slot.process->signal_group(signal);
    }
  }

  const AgentOptions& options_;
  const StopSignals& signals_;
  const std::shared_ptr<Logger> log_;
  HostRendezvous rendezvous_;
  std::vector<Slot> slots_;
  int restarts_ = 0;
  bool ending_ = false;
  int result_ = 0;
  std::optional<MonotonicTime> kill_at_;
};

int positive(std::string_view text, const std::string& whole) {
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

void set_nodes(AgentOptions& options, const std::string& text) {
  const std::size_t colon = text.find(':');
  options.min_nodes = positive(std::string_view(text).substr(0, colon), text);
  options.max_nodes = colon == std::string::npos
                          ? options.min_nodes
                          : positive(std::string_view(text).substr(colon + 1), text);
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
      options.coordinated = true;
      options.worker_index = given.seat.index;
    }
  }
  if (options.command.empty()) refuse("agent: no command is given after --");
  if (options.nproc_per_node < 1 || options.nproc_per_node > rendezvous::kMaxSlot + 1)
    refuse(fmt::format("--nproc_per_node is {}, expected 1 to {}", options.nproc_per_node,
                       rendezvous::kMaxSlot + 1));
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
