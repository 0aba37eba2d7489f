#include "controller/local/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tilewright::local {

Result<Signals> Signals::take_over() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&wanted, number);
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

}  // namespace tilewright::local
