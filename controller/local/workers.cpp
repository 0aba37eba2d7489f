#include "controller/local/workers.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tilewright::local {
namespace {

using reconcile::WorkerPhase;

// A shell's code for a program that cannot be run.
constexpr int kCannotStart = 127;

}  // namespace

// From a worker's creation until it is forgotten.
struct Workers::Life {
  reconcile::Worker worker;
  std::optional<ChildProcess> process;
  std::optional<LogCapture> log;
  std::optional<MonotonicTime> kill_at;
};

Workers::Workers(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Workers::~Workers() {
  while (!lives_.empty()) forget(*lives_.front());
}

std::vector<reconcile::Worker> Workers::observe() const {
  std::vector<reconcile::Worker> workers;
  for (const auto& life : lives_) {
    workers.push_back(life->worker);
    if (life->log && life->worker.finished) workers.back().last_lines = life->log->tail();
  }
  std::ranges::sort(workers, {}, &reconcile::Worker::index);
  return workers;
}

void Workers::create(const reconcile::WorkerCreation& creation) {
  lives_.push_back(std::make_unique<Life>());
  Life& life = *lives_.back();
  const WallTime now = std::chrono::floor<std::chrono::seconds>(options_.now());
  life.worker.name = creation.name;
  life.worker.index = creation.index;
  life.worker.uid = options_.new_uid();
  life.worker.node = options_.node;
  life.worker.created = life.worker.started = now;
  start(life, creation);
}

void Workers::start(Life& life, const reconcile::WorkerCreation& creation) {
  const int index = creation.index;
  const auto fail = [&](const std::string& sentence) {
    options_.on_line(index, sentence);
    life.worker.phase = WorkerPhase::kFailed;
    life.worker.exit_code = kCannotStart;
    life.worker.reason = "StartError";
    life.worker.finished = life.worker.started;
    life.worker.last_lines = sentence;
    options_.on_end();
  };
  Result<LogCapture> log =
      LogCapture::open(options_.log_folder / (creation.name + ".log"),
                       [this, index](std::string_view line) { options_.on_line(index, line); });
  if (!log) return fail(log.error().message);
  const Result<ChildCommand> command = options_.command(creation);
  if (!command) return fail(command.error().message);
  Result<ChildProcess> process = ChildProcess::start(*command);
  if (!process) return fail(process.error().message);
  life.log.emplace(std::move(log).value());
  life.process.emplace(std::move(process).value());
  life.worker.phase = WorkerPhase::kRunning;
  life.worker.ready = true;
  loop_.watch(life.process->output_fd(), [this, &life] { read_output(life); });
  loop_.watch(life.process->exit_fd(), [this, &life] { look_for_end(life); });
}

void Workers::read_output(Life& life) {
  std::array<char, 65536> buffer;
  const int fd = life.process->output_fd();
  const ssize_t size = read(fd, buffer.data(), buffer.size());
  if (size > 0) {
    life.log->append({buffer.data(), static_cast<std::size_t>(size)});
  } else if (size == 0) {
    // It has closed its output and may run on.
    loop_.forget(fd);
    life.process->close_output();
  }
}

void Workers::look_for_end(Life& life) {
  const std::optional<int> code = life.process->poll_exit();
  if (!code) return;
  // What it wrote before its end; somebody it left behind outside its group might hold the pipe
  // open and write on, so this ends when nothing is there, not when the pipe is closed.
  if (life.process->output_fd() >= 0) {
    std::array<char, 65536> buffer;
    ssize_t size = 0;
    while ((size = read(life.process->output_fd(), buffer.data(), buffer.size())) > 0) {
      life.log->append({buffer.data(), static_cast<std::size_t>(size)});
    }
    loop_.forget(life.process->output_fd());
    life.process->close_output();
  }
  life.log->finish();
  loop_.forget(life.process->exit_fd());
  life.worker.phase = *code == 0 ? WorkerPhase::kSucceeded : WorkerPhase::kFailed;
  life.worker.ready = false;
  life.worker.exit_code = code;
  life.worker.reason = *code == 0 ? "Completed" : "Error";
  life.worker.finished = std::chrono::floor<std::chrono::seconds>(options_.now());
  // One that was asked to go is gone now.
  if (life.worker.terminating) forget(life);
  options_.on_end();
}

void Workers::forget(Life& life) {
  if (life.process) {
    loop_.forget(life.process->exit_fd());
    if (life.process->output_fd() >= 0) loop_.forget(life.process->output_fd());
  }
  lives_.remove_if([&](const auto& other) { return other.get() == &life; });
}

void Workers::remove(const reconcile::WorkerDeletion& deletion) {
  const auto found = std::ranges::find_if(
      lives_, [&](const auto& life) { return life->worker.uid == deletion.uid; });
  if (found == lives_.end()) return;
  Life& life = **found;
  if (!life.process || life.worker.finished) return forget(life);
  if (deletion.force) life.process->signal_group(SIGKILL);
  stop(life);
}

void Workers::stop(Life& life) {
  if (std::exchange(life.worker.terminating, true)) return;
  life.process->signal_group(SIGTERM);
  life.kill_at = monotonic_now() + options_.grace;
}

void Workers::stop_all() {
  for (const auto& life : lives_) {
    if (life->process && !life->worker.finished) stop(*life);
  }
}

void Workers::kill_all() {
  for (const auto& life : lives_) {
    if (life->process) life->process->signal_group(SIGKILL);
  }
}

bool Workers::any_alive() const {
  return std::ranges::any_of(
      lives_, [](const auto& life) { return life->process && !life->worker.finished; });
}

std::optional<MonotonicTime> Workers::enforce_grace(MonotonicTime now) {
  std::optional<MonotonicTime> next;
  for (const auto& life : lives_) {
    if (!life->kill_at || life->worker.finished) continue;
    if (*life->kill_at <= now) {
      life->process->signal_group(SIGKILL);
      life->kill_at.reset();
    } else {
      next = next ? std::min(*next, *life->kill_at) : *life->kill_at;
    }
  }
  return next;
}

}  // namespace tilewright::local
