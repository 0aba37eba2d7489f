// Signal handling: `Signals` for programs with an event loop, `StopSignals` for the trainer, whose
// threads compute and cannot read a descriptor.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <optional>

#include "common/base/clock.h"
#include "common/base/exit_codes.h"
#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "common/net/wait.h"

namespace tilewright {

// At the start of a program: a write beyond `ulimit -f` fails with EFBIG instead of ending the
// process, so that the error can be reported.
void ignore_file_size_signal();

// SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored as under nohup, SIGHUP, read from a
// descriptor.
class Signals {
 public:
  // Blocks these signals in the calling thread and in every thread that it starts later, so
  // create this object first. Ignores SIGPIPE from then on: that the reader of the output has ended
  // must not end the training. Errors carry kInternal.
  static Result<Signals> install();

  Signals(Signals&&) = default;
  Signals& operator=(Signals&&) = delete;
  ~Signals();

  int fd() const { return descriptor_.get(); }  // readable while a signal is pending
  // The next pending signal; nullopt: none is pending.
  std::optional<int> next();

 private:
  Signals(FileDescriptor descriptor, const sigset_t& before)
      : descriptor_(std::move(descriptor)), before_(before) {}

  FileDescriptor descriptor_;
  sigset_t before_;
};

// A signal that follows the first one within this time does not ask for more than that:
// timeout(1) sends its signal to the program and then to the process group.
inline constexpr Duration kSameRequest = std::chrono::seconds(1);

// Catches SIGTERM, SIGINT and, unless it is ignored as under nohup, SIGHUP during its lifetime.
// Ignores SIGPIPE from then on, as Signals: Ctrl-C also ends the `tee` that reads the output. A
// process has one handler per signal, so only one object may exist at a time. A second signal of
// the same kind, `same_request` after the first or later, terminates a program that does not stop:
// by its default action or, in process 1, with exit code 128 + n.
class StopSignals {
 public:
  explicit StopSignals(Duration same_request = kSameRequest);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int number() const { return number_.load(); }  // the first signal; 0: none yet
  bool stopped() const { return number() != 0; }
  // 130 after SIGINT, else 143.
  std::optional<ExitCode> exit_code() const;
  const net::WakeUp& cancel_token() const { return cancel_token_; }  // signalled while stopped()

 private:
  static constexpr std::array kNumbers = {SIGTERM, SIGINT, SIGHUP};
  static void handle(int number);

  const Duration same_request_;
  std::atomic<MonotonicTime> first_{};  // when the first signal came
  std::atomic<int> number_{0};
  net::WakeUp cancel_token_;
  std::array<struct sigaction, kNumbers.size()> previous_{};
};

}  // namespace tilewright
