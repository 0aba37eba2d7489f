// Waits for whatever happens first: a readable descriptor or the next timer. One thread, no sleeps.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "common/base/clock.h"

namespace tilewright::local {

class EventLoop {
 public:
  // Calls `readable` from run_once() while `fd` has something to read or was hung up. A second call
  // for the same descriptor replaces the first.
  void watch(int fd, std::function<void()> readable);
  void forget(int fd);

  // Waits until `until` at the longest (for ever if there is none and something is watched), then
  // calls back for every ready descriptor. Callbacks may watch and forget.
  void run_once(std::optional<MonotonicTime> until);

 private:
  std::map<int, std::function<void()>> watched_;
};

}  // namespace tilewright::local
