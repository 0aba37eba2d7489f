// Threads that take no signals.
#pragma once

#include <signal.h>

namespace tilewright {

// Blocks all signals of this thread while it exists. A thread that starts meanwhile keeps them
// blocked, so the program's signals interrupt none of its system calls.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace tilewright
