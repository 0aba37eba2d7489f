// The worker processes of a local job: starts, watches and stops them, and reports them to
// reconcile as the operator reports pods.
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
#include "controller/policy/plan.h"

namespace tilewright::local {

class Workers {
 public:
  struct Options {
    std::filesystem::path log_folder;  // must exist; worker NAME logs to NAME.log in it
    std::string node;                  // name of this machine
    Duration grace{};                  // between SIGTERM and SIGKILL
    // The command of a worker. An Error fails the worker; its message becomes the last log line.
    std::function<Result<ChildCommand>(const policy::WorkerCreation&)> command;
    std::function<std::string()> new_uid;
    std::function<WallTime()> now;
    // Called with each line of a worker's output, unchanged and without its line feed.
    std::function<void(int index, std::string_view line)> on_line;
    std::function<void(int index)> on_worker_exit;
  };

  // `loop` must outlive the object.
  Workers(EventLoop& loop, Options options);
  // Kills the workers that still run.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::vector<policy::Worker> observe() const;
  void create(const policy::WorkerCreation& creation);
  // Sends SIGTERM to a running worker, then SIGKILL after the grace period, or SIGKILL at once if
  // the deletion is forced. Forgets a worker that has exited. Ignores an unknown UID.
  void remove(const policy::WorkerDeletion& deletion);
  void stop_all();  // remove() for every running worker
  void kill_all();  // SIGKILL to every worker

  bool any_alive() const;
  // Kills the workers whose grace period has ended; returns the end of the next grace period.
  std::optional<MonotonicTime> enforce_grace_period(MonotonicTime now);

 private:
  struct Entry;
  void start(Entry& entry, const policy::WorkerCreation& creation);
  void read_output(Entry& entry);
  void handle_exit(Entry& entry);
  void stop(Entry& entry);
  void forget(Entry& entry);

  EventLoop& loop_;
  Options options_;
  std::list<std::unique_ptr<Entry>> entries_;
};

}  // namespace tilewright::local
