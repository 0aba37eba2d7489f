// Output that never blocks its caller: a thread writes what does not fit into the buffer of the
// pipe or terminal.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/base/clock.h"

namespace tilewright {

class OutputQueue {
 public:
  // Maximum number of queued bytes. Further text is dropped.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{1} << 20;
  // Maximum time that the destructor waits for a reader that does not read.
  static constexpr Duration kDrainTimeout = std::chrono::seconds(1);

  OutputQueue();
  // Writes the queued text, for at most kDrainTimeout.
  ~OutputQueue();
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  // Writes `text`, whole lines, to `fd`. Texts keep their order, also over different descriptors.
  // A file, or a pipe that is not full, gets the text before the call returns, so that a process
  // that dies has written its last line. If text was dropped, a line before the next text says so.
  // A write error, such as a closed reader, drops the text. Thread-safe. `fd` must stay open until
  // the destructor returns.
  void write(int fd, std::string_view text);

 private:
  struct State;
  // Shared with the thread, which may block in a write beyond the lifetime of this object.
  std::shared_ptr<State> state_;
};

}  // namespace tilewright
