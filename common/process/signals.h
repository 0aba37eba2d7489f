// Signal handling: `Signals` for programs with an event loop, `StopSignals` for the trainer, whose
// threads compute and cannot read a descriptor.
#pragma once

#include <signal.h>

#include <atomic>
#include <optional>

#include "common/base/exit_codes.h"
#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "common/net/wait.h"

namespace tilewright {

// SIGINT, SIGTERM, SIGHUP and SIGUSR1, read from a descriptor.
class Signals {
 public:
  // Blocks the four signals in the calling thread and in every thread that it starts later, so
  // create this object first. Ignores SIGPIPE: a closed standard output must not end the training.
  // Errors carry kInternal.
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

// Catches SIGTERM and SIGINT during its lifetime. A process has one handler per signal, so only one
// object may exist at a time. A second signal of the same kind terminates a program that does not
// stop: by its default action or, in process 1, with exit code 128 + n.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int number() const { return number_.load(); }  // the first signal; 0: none yet
  bool stopped() const { return number() != 0; }
  // 143 after SIGTERM, 130 after SIGINT.
  std::optional<ExitCode> exit_code() const;
  const net::WakeUp& cancel_token() const { return cancel_token_; }  // signalled while stopped()

 private:
  static void handle(int number);

  std::atomic<int> number_{0};
  net::WakeUp cancel_token_;
  struct sigaction previous_sigterm_ {};
  struct sigaction previous_sigint_ {};
};

}  // namespace tilewright
