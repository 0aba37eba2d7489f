#include "controller/local/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tilewright::local {
namespace {

// A full disk or the like: how long until the status is tried again.
constexpr std::chrono::seconds kSaveAgain{1};

std::optional<MonotonicTime> earlier(std::optional<MonotonicTime> a,
                                     std::optional<MonotonicTime> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

Session::Session(api::TrainJob job, Coordinator& coordinator, Signals& signals, Console& console,
                 Options options)
    : job_(std::move(job)),
      coordinator_(coordinator),
      signals_(signals),
      console_(console),
      options_(std::move(options)),
      workers_(loop_, [this] {
        Workers::Options workers = options_.workers;
        workers.on_line = [this](int index, std::string_view line) {
          console_.worker_line(index, line);
        };
        workers.on_end = [this] { look_ = true; };
        return workers;
      }()) {
  loop_.watch(signals_.fd(), [this] { handle_signals(); });
  loop_.watch(coordinator_.changes_fd(), [this] {
    coordinator_.take_changes();
    look_ = true;
    if (const auto live = coordinator_.progress()) console_.show_progress(*live);
  });
}

reconcile::Observed Session::gather() const {
  reconcile::Observed observed;
  observed.job = job_;
  // Stopping is suspending: the same deletions, the same status, and the next `up` resumes.
  if (stopped_by_ != 0) observed.job.spec.run_policy.suspend = true;
  observed.workers = workers_.observe();
  if (const auto live = coordinator_.progress()) observed.progress = live->progress;
  observed.runtime.job_can_change = false;
  return observed;
}

bool Session::apply(const reconcile::Plan& plan) {
  if (plan.status) {
    api::TrainJob next = job_;
    next.status = *plan.status;
    const Status saved = options_.save(next);
    if (!saved) {
      if (!std::exchange(save_failed_, true)) console_.note(saved.error().message);
      // Nothing else without the status; but whoever wants to stop is not held up by a full disk.
      if (stopped_by_ == 0) return false;
    } else {
      save_failed_ = false;
    }
    job_ = std::move(next);
  }
  for (const reconcile::WorkerDeletion& deletion : plan.deletions) workers_.remove(deletion);
  // Before any worker that would ask for it.
  if (plan.membership) {
    if (const Status told = coordinator_.expect(*plan.membership); !told) {
      console_.note(told.error().message);
    }
  } else {
    coordinator_.close();
  }
  for (const reconcile::WorkerCreation& creation : plan.creations) workers_.create(creation);
  note_events(plan);
  return plan.status || !plan.creations.empty();
}

void Session::note_events(const reconcile::Plan& plan) {
  for (const reconcile::Event& event : plan.events) {
    // What the summary says anyway, and what nobody asked.
    if (event.reason == "Created" || event.reason == "Succeeded" || event.reason == "Running") {
      continue;
    }
    console_.note(event.message);
  }
  if (plan.status && plan.status->phase == api::Phase::kSuspended && stopped_by_ == 0) {
    console_.note(
        fmt::format("set spec.runPolicy.suspend to false and `kill -USR1 {}` to go on", getpid()));
  }
}

void Session::handle_signals() {
  while (const std::optional<int> number = signals_.next()) {
    if (*number == SIGUSR1) {
      reload();
    } else if (stopped_by_ != 0) {
      console_.note("stopping at once");
      workers_.kill_all();
    } else {
      stopped_by_ = *number;
      look_ = true;
      console_.note("stopping the workers; once more stops them at once");
    }
  }
}

void Session::reload() {
  const Result<api::TrainJobSpec> spec = options_.reload();
  if (!spec) {
    console_.note("the manifest was changed to one that is not taken: " + spec.error().message);
    return;
  }
  if (*spec == job_.spec) return;
  job_.spec = *spec;
  ++job_.metadata.generation;
  look_ = true;
}

void Session::run() {
  std::optional<MonotonicTime> timer;  // of the last look's plan
  for (;;) {
    while (std::exchange(look_, false)) {
      const reconcile::Plan plan = reconcile::reconcile(gather(), wall_now());
      look_ = apply(plan) || look_;
      timer.reset();
      if (plan.requeue_after) timer = monotonic_now() + *plan.requeue_after;
      if (save_failed_) timer = earlier(timer, monotonic_now() + kSaveAgain);
      if (look_) continue;
      const bool over = stopped_by_ != 0 || (plan.finished && !save_failed_);
      // cleanPodPolicy None leaves pods alone; processes end with `up`.
      if (over) workers_.stop_all();
      if (over && !workers_.any_alive()) return;
    }
    loop_.run_once(earlier(timer, workers_.enforce_grace(monotonic_now())));
    if (timer && monotonic_now() >= *timer) look_ = true;
  }
}

}  // namespace tilewright::local
