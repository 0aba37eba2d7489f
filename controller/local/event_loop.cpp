#include "controller/local/event_loop.h"

#include <poll.h>

#include <utility>
#include <vector>

#include "common/net/wait.h"

namespace tilewright::local {

void EventLoop::watch(int fd, std::function<void()> readable) {
  watched_[fd] = std::move(readable);
}

void EventLoop::forget(int fd) { watched_.erase(fd); }

void EventLoop::run_once(std::optional<MonotonicTime> until) {
  std::vector<pollfd> polled;
  polled.reserve(watched_.size());
  for (const auto& [fd, callback] : watched_) polled.push_back({fd, POLLIN, 0});
  // Callers check their deadline again after at most kLongestWait.
  const int timeout = until ? net::poll_timeout(*until) : -1;
  // EINTR ends the wait early; callers check their state after every return.
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;
  for (const pollfd& ready : polled) {
    if (ready.revents == 0) continue;
    // An earlier callback may have called forget(). Copied, because the callback may forget its own
    // fd.
    const auto found = watched_.find(ready.fd);
    if (found == watched_.end()) continue;
    const std::function<void()> callback = found->second;
    callback();
  }
}

}  // namespace tilewright::local
