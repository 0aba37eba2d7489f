// SIGINT, SIGTERM, SIGHUP and SIGUSR1 as things to read from a descriptor.
#pragma once

#include <signal.h>

#include <optional>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright::local {

class Signals {
 public:
  // Blocks the four in the calling thread, and so in every thread that it starts later: make this
  // object first. Ignores SIGPIPE: a reader of our output that goes away must not end the training.
  static Result<Signals> take_over();

  Signals(Signals&&) = default;
  Signals& operator=(Signals&&) = delete;
  ~Signals();

  int fd() const { return descriptor_.get(); }
  // The next one that has come, nothing if there is none.
  std::optional<int> next();

 private:
  Signals(FileDescriptor descriptor, const sigset_t& before)
      : descriptor_(std::move(descriptor)), before_(before) {}

  FileDescriptor descriptor_;
  sigset_t before_;
};

}  // namespace tilewright::local
