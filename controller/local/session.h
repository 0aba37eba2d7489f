// One run of a job on this machine: gather, reconcile, apply, wait for what happens next.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "controller/api/trainjob.h"
#include "controller/local/console.h"
#include "controller/local/coordinator.h"
#include "controller/local/event_loop.h"
#include "controller/local/signals.h"
#include "controller/local/workers.h"
#include "controller/reconcile/reconcile.h"

namespace tilewright::local {

class Session {
 public:
  struct Options {
    Workers::Options workers;  // on_line and on_end are set by the session
    std::function<Status(const api::TrainJob&)> save;
    // The manifest as it is now, for SIGUSR1.
    std::function<Result<api::TrainJobSpec>()> reload;
  };

  // All references must outlive the object.
  Session(api::TrainJob job, Coordinator& coordinator, Signals& signals, Console& console,
          Options options);

  // Until the job has ended, or it was stopped (SIGINT, SIGTERM, SIGHUP) and all workers are gone.
  // A stopped job is suspended: its status says so, and a later `up` resumes it.
  void run();

  const api::TrainJob& job() const { return job_; }
  // The signal that stopped the run; 0 if none did.
  int stopped_by() const { return stopped_by_; }

  // The two halves of a turn, for tests: what reconcile sees, and doing what it says. apply()
  // returns whether anything changed that is worth another look at once.
  reconcile::Observed gather() const;
  bool apply(const reconcile::Plan& plan);
  EventLoop& loop() { return loop_; }

 private:
  void handle_signals();
  void reload();
  void note_events(const reconcile::Plan& plan);

  api::TrainJob job_;
  Coordinator& coordinator_;
  Signals& signals_;
  Console& console_;
  Options options_;
  EventLoop loop_;
  Workers workers_;
  bool look_ = true;  // something has happened since the last look
  int stopped_by_ = 0;
  bool save_failed_ = false;
};

}  // namespace tilewright::local
