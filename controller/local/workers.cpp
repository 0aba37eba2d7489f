#include "controller/local/workers.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tilewright::local {
namespace {

using policy::WorkerPhase;

// The exit code with which a shell reports a command that it cannot find.
constexpr int kCannotStart = 127;

}  // namespace

// A worker from its creation until its deletion.
struct Workers::Entry {
  policy::Worker worker;
  std::optional<ChildProcess> process;
  std::optional<LogCapture> log;
  std::optional<MonotonicTime> kill_at;
};

Workers::Workers(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Workers::~Workers() {
  while (!entries_.empty()) forget(*entries_.front());
}

std::vector<policy::Worker> Workers::observe() const {
  std::vector<policy::Worker> workers;
  for (const auto& entry : entries_) {
    workers.push_back(entry->worker);
    if (entry->log && entry->worker.finished) workers.back().last_lines = entry->log->tail();
  }
  std::ranges::sort(workers, {}, &policy::Worker::index);
  return workers;
}

void Workers::create(const policy::WorkerCreation& creation) {
  entries_.push_back(std::make_unique<Entry>());
  Entry& entry = *entries_.back();
  const WallTime now = std::chrono::floor<std::chrono::seconds>(options_.now());
  entry.worker.name = creation.name;
  entry.worker.index = creation.index;
  entry.worker.uid = options_.new_uid();
  entry.worker.node = options_.node;
  entry.worker.created = entry.worker.started = now;
  start(entry, creation);
}

void Workers::start(Entry& entry, const policy::WorkerCreation& creation) {
  const int index = creation.index;
  const auto fail = [&](const std::string& sentence) {
    options_.on_line(index, sentence);
    entry.worker.phase = WorkerPhase::kFailed;
    entry.worker.exit_code = kCannotStart;
    entry.worker.reason = "StartError";
    entry.worker.finished = entry.worker.started;
    entry.worker.last_lines = sentence;
    options_.on_worker_exit(index);
  };
  Result<LogCapture> log =
      LogCapture::open(options_.log_folder / (creation.name + ".log"),
                       [this, index](std::string_view line) { options_.on_line(index, line); });
  if (!log) return fail(log.error().message);
  const Result<ChildCommand> command = options_.command(creation);
  if (!command) return fail(command.error().message);
  Result<ChildProcess> process = ChildProcess::start(*command);
  if (!process) return fail(process.error().message);
  entry.log.emplace(std::move(log).value());
  entry.process.emplace(std::move(process).value());
  entry.worker.phase = WorkerPhase::kRunning;
  entry.worker.ready = true;
  loop_.watch(entry.process->output_fd(), [this, &entry] { read_output(entry); });
  loop_.watch(entry.process->exit_fd(), [this, &entry] { handle_exit(entry); });
}

void Workers::read_output(Entry& entry) {
  std::array<char, 65536> buffer;
  const int fd = entry.process->output_fd();
  const ssize_t size = read(fd, buffer.data(), buffer.size());
  if (size > 0) {
    entry.log->append({buffer.data(), static_cast<std::size_t>(size)});
  } else if (size == 0) {
    // The worker closed its output; it may still run.
    loop_.forget(fd);
    entry.process->close_output();
  }
}

void Workers::handle_exit(Entry& entry) {
  const std::optional<int> code = entry.process->poll_exit();
  if (!code) return;
  // Reads the rest of the output until the pipe is empty, not until it is closed: a descendant in
  // another process group may keep it open.
  if (entry.process->output_fd() >= 0) {
    std::array<char, 65536> buffer;
    ssize_t size = 0;
    while ((size = read(entry.process->output_fd(), buffer.data(), buffer.size())) > 0) {
      entry.log->append({buffer.data(), static_cast<std::size_t>(size)});
    }
    loop_.forget(entry.process->output_fd());
    entry.process->close_output();
  }
  entry.log->finish();
  loop_.forget(entry.process->exit_fd());
  entry.worker.phase = *code == 0 ? WorkerPhase::kSucceeded : WorkerPhase::kFailed;
  entry.worker.ready = false;
  entry.worker.exit_code = code;
  entry.worker.reason = *code == 0 ? "Completed" : "Error";
  entry.worker.finished = std::chrono::floor<std::chrono::seconds>(options_.now());
  const int index = entry.worker.index;
  // The exit completes the deletion of a terminating worker.
  if (entry.worker.terminating) forget(entry);
  options_.on_worker_exit(index);
}

void Workers::forget(Entry& entry) {
  if (entry.process) {
    loop_.forget(entry.process->exit_fd());
    if (entry.process->output_fd() >= 0) loop_.forget(entry.process->output_fd());
  }
  entries_.remove_if([&](const auto& other) { return other.get() == &entry; });
}

void Workers::remove(const policy::WorkerDeletion& deletion) {
  const auto found = std::ranges::find_if(
      entries_, [&](const auto& entry) { return entry->worker.uid == deletion.uid; });
  if (found == entries_.end()) return;
  Entry& entry = **found;
  if (!entry.process || entry.worker.finished) return forget(entry);
  if (deletion.force) entry.process->signal_group(SIGKILL);
  stop(entry);
}

void Workers::stop(Entry& entry) {
  if (std::exchange(entry.worker.terminating, true)) return;
  entry.process->signal_group(SIGTERM);
  entry.kill_at = monotonic_now() + options_.grace;
}

void Workers::stop_all() {
  for (const auto& entry : entries_) {
    if (entry->process && !entry->worker.finished) stop(*entry);
  }
}

void Workers::kill_all() {
  for (const auto& entry : entries_) {
    if (entry->process) entry->process->signal_group(SIGKILL);
  }
}

bool Workers::any_alive() const {
  return std::ranges::any_of(
      entries_, [](const auto& entry) { return entry->process && !entry->worker.finished; });
}

std::optional<MonotonicTime> Workers::enforce_grace_period(MonotonicTime now) {
  std::optional<MonotonicTime> next;
  for (const auto& entry : entries_) {
    if (!entry->kill_at || entry->worker.finished) continue;
    if (*entry->kill_at <= now) {
      entry->process->signal_group(SIGKILL);
      entry->kill_at.reset();
    } else {
      next = next ? std::min(*next, *entry->kill_at) : *entry->kill_at;
    }
  }
  return next;
}

}  // namespace tilewright::local
