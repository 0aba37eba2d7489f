#include "controller/local/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "controller/policy/clock_skew.h"
#include "controller/policy/messages.h"

namespace tilewright::local {
namespace {

// Delay before the status is written again after a failure, such as a full disk.
constexpr std::chrono::seconds kSaveRetryDelay{1};

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
        workers.on_worker_exit = [this](int index) {
          coordinator_.worker_exited(index);
          reconcile_pending_ = true;
        };
        return workers;
      }()) {
  loop_.watch(signals_.fd(), [this] { handle_signals(); });
  loop_.watch(coordinator_.changes_fd(), [this] {
    coordinator_.take_changes();
    reconcile_pending_ = true;
    if (const auto live = coordinator_.progress()) console_.show_progress(*live);
  });
}

policy::Observed Session::gather() const {
  policy::Observed observed;
  observed.job = job_;
  // A stop signal suspends the job: deletions and status are the same, and the next `up` resumes
  // it.
  if (stop_signal_ != 0) observed.job.spec.run_policy.suspend = true;
  observed.workers = workers_.observe();
  observed.rendezvous = coordinator_.progress();
  observed.runtime.job_can_change = false;
  return observed;
}

bool Session::apply(const policy::Plan& plan) {
  if (plan.status) {
    api::TrainJob next = job_;
    next.status = *plan.status;
    const Status saved = options_.save(next);
    if (!saved) {
      if (!std::exchange(save_failed_, true)) warn(saved.error().message);
      // The rest of the plan waits until the status is saved, except when the user stops the job.
      if (stop_signal_ == 0) return false;
    } else {
      save_failed_ = false;
    }
    job_ = std::move(next);
  }
  for (const policy::WorkerDeletion& deletion : plan.deletions) workers_.remove(deletion);
  // The membership must be set before a new worker connects.
  if (plan.membership) {
    if (const Status sent = coordinator_.expect(*plan.membership); !sent) {
      warn(sent.error().message);
    }
  } else {
    coordinator_.close();
  }
  for (const policy::WorkerCreation& creation : plan.creations) workers_.create(creation);
  collect_events(plan);
  return plan.status || !plan.creations.empty();
}

void Session::warn(std::string_view text) {
  console_.print("warning", text, Console::Style::kWarning);
}

void Session::collect_events(const policy::Plan& plan) {
  for (const policy::Event& event : plan.events) {
    // The messages that begin with a failure also say what follows from it.
    std::erase_if(events_, [&](const policy::Event& before) {
      return before.reason == policy::event_reason::kWorkerFailed &&
             event.message.starts_with(before.message);
    });
    events_.push_back(event);
  }
}

void Session::print_events() {
  const api::Condition* failed = job_.status.find_condition(api::condition::kFailed);
  for (const policy::Event& event : std::exchange(events_, {})) {
    // The first and last lines of the run already report these events. After a signal, the spec
    // does not suspend the job, as the message of a suspension says.
    if (event.reason == policy::event_reason::kCreated ||
        event.reason == policy::event_reason::kSucceeded ||
        event.reason == policy::event_reason::kRunning ||
        (event.reason == policy::event_reason::kSuspended && stop_signal_ != 0)) {
      continue;
    }
    if (failed != nullptr && event.message == failed->message) continue;
    if (event.warning) {
      warn(event.message);
    } else {
      console_.print("event", event.message);
    }
    if (event.reason == policy::event_reason::kSuspended) {
      console_.print("suspended",
                     fmt::format("to resume, set spec.runPolicy.suspend to false and run "
                                 "`kill -USR1 {}`",
                                 getpid()));
    }
  }
}

void Session::handle_signals() {
  while (const std::optional<int> number = signals_.next()) {
    if (*number == SIGUSR1) {
      reload();
    } else if (stop_signal_ != 0) {
      if (monotonic_now() - stop_signal_time_ < kSameRequest) continue;
      console_.print("stopping", "killing all workers");
      workers_.kill_all();
    } else {
      stop_signal_ = *number;
      stop_signal_time_ = monotonic_now();
      reconcile_pending_ = true;
      console_.print("stopping", "waiting for the workers to stop; a second signal kills them");
    }
  }
}

void Session::reload() {
  const Result<api::TrainJobSpec> spec = options_.reload();
  if (!spec) {
    warn("the changed manifest is ignored: " + spec.error().message);
    return;
  }
  if (*spec == job_.spec) return;
  job_.spec = *spec;
  ++job_.metadata.generation;
  reconcile_pending_ = true;
}

void Session::run() {
  std::optional<MonotonicTime> timer;  // when the last plan's requeue_after ends
  for (;;) {
    while (std::exchange(reconcile_pending_, false)) {
      const WallTime now = wall_now();
      policy::Observed observed = gather();
      policy::correct_clock_skew(observed, now);
      const policy::Plan plan = policy::reconcile(observed, now);
      reconcile_pending_ = apply(plan) || reconcile_pending_;
      timer.reset();
      if (plan.requeue_after) timer = monotonic_now() + *plan.requeue_after;
      if (save_failed_) timer = earlier(timer, monotonic_now() + kSaveRetryDelay);
      if (reconcile_pending_) continue;
      print_events();
      const bool over = stop_signal_ != 0 || (plan.finished && !save_failed_);
      // `up` leaves no process running, even with cleanPodPolicy None.
      if (over) workers_.stop_all();
      if (over && !workers_.any_alive()) return;
    }
    loop_.run_once(earlier(timer, workers_.enforce_grace_period(monotonic_now())));
    if (timer && monotonic_now() >= *timer) reconcile_pending_ = true;
  }
}

}  // namespace tilewright::local
