// What wakes an idle communication thread: a signal, or one event of each armed descriptor. Other
// threads can arm and disarm descriptors while it sleeps, without waking it.
#pragma once

#include <poll.h>

#include <vector>

#include "common/base/file_descriptor.h"
#include "common/net/wait.h"

namespace tilewright::collectives {

// Not thread-safe, except for wait().
class IdleWatch {
 public:
  // `signal` outlives the object.
  explicit IdleWatch(const net::WakeUp& signal);

  // Each descriptor wakes the thread once, when it has one of the events of its entry, even if it
  // has it already.
  void arm(std::vector<pollfd> fds);
  bool armed() const { return !armed_.empty(); }
  // After this at most the end of a connection still wakes the thread.
  void disarm();
  // Returns at a signal, or with the entries of descriptors that have an event.
  std::vector<pollfd> wait() const;

 private:
  const int signal_;
  FileDescriptor epoll_;
  std::vector<pollfd> armed_;
};

}  // namespace tilewright::collectives
