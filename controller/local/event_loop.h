// Single-threaded event loop: waits with poll(2) for readable descriptors or a deadline.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "common/base/clock.h"

namespace tilewright::local {

class EventLoop {
 public:
  // Calls `readable` from run_once() while `fd` is readable or hung up. A second call for the same
  // descriptor replaces the callback.
  void watch(int fd, std::function<void()> readable);
  void forget(int fd);

  // Waits until a descriptor is ready or `until` has passed (nullopt: no time limit), then calls
  // the callback of every ready descriptor. Callbacks may call watch() and forget().
  void run_once(std::optional<MonotonicTime> until);

 private:
  std::map<int, std::function<void()>> watched_;
};

}  // namespace tilewright::local
