#include "common/process/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/check.h"
#include "common/base/exit_codes.h"

namespace tilewright {

namespace {

// As under nohup.
bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void ignore_file_size_signal() { signal(SIGXFSZ, SIG_IGN); }

Result<Signals> Signals::install() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&wanted, number);
  if (!is_ignored(SIGHUP)) sigaddset(&wanted, SIGHUP);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &wanted, &before);
  signal(SIGPIPE, SIG_IGN);
  FileDescriptor descriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor) {
    return Error{ExitCode::kInternal,
                 fmt::format("cannot receive signals: {}", std::strerror(errno))};
  }
  return Signals(std::move(descriptor), before);
}

Signals::~Signals() {
  if (descriptor_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  if (read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

namespace {

// A signal handler receives only a number, so it finds its object here.
std::atomic<StopSignals*> receiver{nullptr};

}  // namespace

StopSignals::StopSignals(Duration same_request) : same_request_(same_request) {
  StopSignals* none = nullptr;
  TW_CHECK(receiver.compare_exchange_strong(none, this), "two StopSignals at a time");
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action {};
  action.sa_handler = &StopSignals::handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // waits are ended by the cancel token, not by EINTR
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    sigaction(kNumbers[i], nullptr, &previous_[i]);
    const bool is_kept = kNumbers[i] == SIGHUP && previous_[i].sa_handler == SIG_IGN;
    if (!is_kept) sigaction(kNumbers[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kNumbers.size(); ++i) sigaction(kNumbers[i], &previous_[i], nullptr);
  receiver.store(nullptr);
}

void StopSignals::handle(int number) {
  StopSignals* self = receiver.load();
  if (self == nullptr) return;
  const MonotonicTime now = monotonic_now();
  MonotonicTime since{};
  if (self->first_.compare_exchange_strong(since, now)) since = now;
  int first = 0;
  if (self->number_.compare_exchange_strong(first, number)) {
    self->cancel_token_.signal();
  } else if (first == number && now - since >= self->same_request_) {
    // The kernel ignores the default action of a signal in process 1, such as that of a container.
    if (getpid() == 1) _exit(kSignalExitCodeBase + number);
    signal(number, SIG_DFL);
    raise(number);
  }
}

std::optional<ExitCode> StopSignals::exit_code() const {
  if (!stopped()) return std::nullopt;
  return number() == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

}  // namespace tilewright
