#include "controller/local/event_loop.h"

#include <poll.h>

#include <algorithm>
#include <vector>

namespace tilewright::local {
namespace {

// Milliseconds until `until`, rounded up so that the deadline has passed when poll() returns. At
// most one hour, so that the value fits an int; callers check their deadline again.
int milliseconds_until(MonotonicTime until) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(until - monotonic_now());
  return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, 3'600'000));
}

}  // namespace

void EventLoop::watch(int fd, std::function<void()> readable) {
  watched_[fd] = std::move(readable);
}

void EventLoop::forget(int fd) { watched_.erase(fd); }

void EventLoop::run_once(std::optional<MonotonicTime> until) {
  std::vector<pollfd> polled;
  polled.reserve(watched_.size());
  for (const auto& [fd, callback] : watched_) polled.push_back({fd, POLLIN, 0});
  const int timeout = until ? milliseconds_until(*until) : -1;
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
