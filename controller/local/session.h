// The control loop of `tilewright up`: observe, reconcile, apply, wait for the next event.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/process/signals.h"
#include "controller/api/trainjob.h"
#include "controller/local/console.h"
#include "controller/local/coordinator.h"
#include "controller/local/event_loop.h"
#include "controller/local/workers.h"
#include "controller/policy/reconcile.h"
#include "controller/policy/status.h"

namespace tilewright::local {

class Session {
 public:
  struct Options {
    Workers::Options workers;  // on_line and on_worker_exit are set by the session
    std::function<Status(const api::TrainJob&)> save;
    // Reads the manifest again. Called on SIGUSR1.
    std::function<Result<api::TrainJobSpec>()> reload;
  };

  // All references must outlive the object.
  Session(api::TrainJob job, Coordinator& coordinator, Signals& signals, Console& console,
          Options options);

  // Returns when the job has finished, or SIGINT, SIGTERM or SIGHUP has stopped it, and every
  // worker has exited. A stopped job has the phase Suspended; a later `up` resumes it.
  void run();

  const api::TrainJob& job() const { return job_; }
  // The signal that stopped the job before its end, or 0.
  int stop_signal() const { return policy::is_final(job_.status.phase) ? 0 : stop_signal_; }

  // The two halves of one iteration, public for tests. gather() returns the input of reconcile();
  // apply() carries out its plan and returns whether the next reconcile should follow at once.
  policy::Observed gather() const;
  bool apply(const policy::Plan& plan);
  EventLoop& loop() { return loop_; }

 private:
  void handle_signals();
  void reload();
  void warn(std::string_view text);
  void collect_events(const policy::Plan& plan);
  void print_events();

  api::TrainJob job_;
  Coordinator& coordinator_;
  Signals& signals_;
  Console& console_;
  Options options_;
  EventLoop loop_;
  Workers workers_;
  std::vector<policy::Event> events_;  // of the plans since the last print_events()
  bool reconcile_pending_ = true;      // an event happened after the last reconcile
  int stop_signal_ = 0;
  MonotonicTime stop_signal_time_;
  bool save_failed_ = false;
};

}  // namespace tilewright::local
