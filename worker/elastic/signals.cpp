#include "worker/elastic/signals.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/check.h"

namespace tilewright::elastic {
namespace {

// A signal handler gets nothing but a number, so the one object that catches signals is known here.
std::atomic<StopSignals*> receiver{nullptr};

}  // namespace

StopSignals::StopSignals() {
  StopSignals* nobody = nullptr;
  TW_CHECK(receiver.compare_exchange_strong(nobody, this), "two StopSignals at a time");
  struct sigaction action {};
  action.sa_handler = &StopSignals::handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // who waits, waits for the bell
  sigaction(SIGTERM, &action, &before_term_);
  sigaction(SIGINT, &action, &before_interrupt_);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGINT, &before_interrupt_, nullptr);
  receiver.store(nullptr);
}

void StopSignals::handle(int number) {
  StopSignals* self = receiver.load();
  if (self == nullptr) return;
  int none = 0;
  if (self->number_.compare_exchange_strong(none, number)) {
    self->bell_.signal();
  } else if (none == number) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

std::optional<ExitCode> StopSignals::exit_code() const {
  if (!stopped()) return std::nullopt;
  return number() == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

}  // namespace tilewright::elastic
