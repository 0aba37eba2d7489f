// SIGTERM and SIGINT as a flag and a bell.
#pragma once

#include <atomic>
#include <csignal>
#include <optional>

#include "common/base/exit_codes.h"
#include "common/net/wait.h"

namespace tilewright::elastic {

// Catches SIGTERM and SIGINT while it lives; at most one may live at a time, as signals belong to
// the process. The second signal of a kind acts as if nobody caught it: whoever insists is obeyed.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int number() const { return number_.load(); }  // the first signal that came; 0: none
  bool stopped() const { return number() != 0; }
  // 143 after SIGTERM, 130 after SIGINT.
  std::optional<ExitCode> exit_code() const;
  const net::WakeUp& bell() const { return bell_; }  // rung while stopped()

 private:
  static void handle(int number);

  std::atomic<int> number_{0};
  net::WakeUp bell_;
  struct sigaction before_term_ {};
  struct sigaction before_interrupt_ {};
};

}  // namespace tilewright::elastic
