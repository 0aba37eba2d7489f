// The worker processes of one job: started, watched, stopped; shown to reconcile as it would see
// pods.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/process/child_process.h"
#include "controller/local/event_loop.h"
#include "controller/local/log_capture.h"
#include "controller/reconcile/plan.h"

namespace tilewright::local {

class Workers {
 public:
  struct Options {
    std::filesystem::path log_folder;  // must exist; a worker's log is NAME.log in it
    std::string node;                  // this machine's name
    Duration grace{};                  // between SIGTERM and SIGKILL
    // What to run for a worker; an Error's sentence becomes that worker's last line.
    std::function<Result<ChildCommand>(const reconcile::WorkerCreation&)> command;
    std::function<std::string()> new_uid;
    std::function<WallTime()> now;
    // Each line of a worker's output, without its end, as it came.
    std::function<void(int index, std::string_view line)> on_line;
    std::function<void()> on_end;  // a worker has ended
  };

  // `loop` must outlive the object.
  Workers(EventLoop& loop, Options options);
  // Kills whatever still runs.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::vector<reconcile::Worker> observe() const;
  void create(const reconcile::WorkerCreation& creation);
  // SIGTERM to one that runs, SIGKILL after the grace period or at once if forced; one that has
  // ended is forgotten. Another UID than the worker's: nothing.
  void remove(const reconcile::WorkerDeletion& deletion);
  void stop_all();  // as remove() of all that run
  void kill_all();

  bool any_alive() const;
  // Kills those whose grace is over; returns when the next one's is.
  std::optional<MonotonicTime> enforce_grace(MonotonicTime now);

 private:
  struct Life;
  void start(Life& life, const reconcile::WorkerCreation& creation);
  void read_output(Life& life);
  void look_for_end(Life& life);
  void stop(Life& life);
  void forget(Life& life);

  EventLoop& loop_;
  Options options_;
  std::list<std::unique_ptr<Life>> lives_;
};

}  // namespace tilewright::local
