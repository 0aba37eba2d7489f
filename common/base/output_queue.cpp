#include "common/base/output_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/base/blocked_signals.h"
#include "common/base/file_descriptor.h"

namespace tilewright {
namespace {

// Whether poll() tells reliably if write() blocks: a pipe that is ready takes PIPE_BUF bytes
// (pipe(7)), and a file is always ready. A terminal that is ready may take less than it is given.
bool poll_is_reliable(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode));
}

// `timeout` in milliseconds; -1: without limit.
bool is_ready(int fd, int timeout) {
  pollfd polled{fd, POLLOUT, 0};
  return poll(&polled, 1, timeout) == 1 && (polled.revents & POLLOUT) != 0;
}

// Returns the number of bytes that need no further write: those written, or all after an error.
std::size_t write_chunk(int fd, std::string_view text) {
  const ssize_t size = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
  if (size >= 0) return static_cast<std::size_t>(size);
  return errno == EINTR || errno == EAGAIN ? 0 : text.size();
}

}  // namespace

struct OutputQueue::State {
  struct Entry {
    int fd;
    std::string text;
  };

  std::mutex mutex;
  std::condition_variable changed;
  // Copies of the callers' descriptors: after the queue's end, the number of one that is closed may
  // name another file.
  std::map<int, FileDescriptor> copies;
  std::deque<Entry> waiting;  // its first entry is being written by the thread
  std::size_t waiting_bytes = 0;
  std::size_t dropped_lines = 0;
  bool has_thread = false;
  bool stop = false;

  void drop(std::string_view text) {
    dropped_lines += static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }

  void enqueue(int fd, std::string_view text) {
    FileDescriptor& copy = copies[fd];
    if (!copy) copy = FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return drop(text);
    waiting.push_back({copy.get(), std::string(text)});
    waiting_bytes += text.size();
    changed.notify_all();
  }

  // Writes the waiting entries until `stop` is set and none is left.
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !waiting.empty(); });
      if (waiting.empty()) return;
      const Entry& entry = waiting.front();  // stays where it is while others are appended
      lock.unlock();
      for (std::string_view text = entry.text; !text.empty();) {
        is_ready(entry.fd, -1);  // waits also where the descriptor is non-blocking
        text.remove_prefix(write_chunk(entry.fd, text));
      }
      lock.lock();
      waiting_bytes -= waiting.front().text.size();
      waiting.pop_front();
      changed.notify_all();
    }
  }
};

OutputQueue::OutputQueue() : state_(std::make_shared<State>()) {}

OutputQueue::~OutputQueue() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kDrainTimeout, [this] { return state_->waiting.empty(); });
}

void OutputQueue::write(int fd, std::string_view text) {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  if (state.waiting_bytes + text.size() > kMaxWaitingBytes) {
    state.drop(text);
    return;
  }
  std::string with_notice;
  if (const std::size_t lines = std::exchange(state.dropped_lines, 0); lines > 0) {
    with_notice =
        fmt::format("[{} lines are missing here: their reader was too slow]\n{}", lines, text);
    text = with_notice;
  }
  if (state.waiting.empty() && poll_is_reliable(fd)) {
    while (!text.empty() && is_ready(fd, 0)) text.remove_prefix(write_chunk(fd, text));
  }
  if (text.empty()) return;
  state.enqueue(fd, text);
  if (std::exchange(state.has_thread, true)) return;
  const BlockedSignals blocked;
  std::thread([shared = state_] { shared->run(); }).detach();
}

}  // namespace tilewright
