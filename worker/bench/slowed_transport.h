// A transport whose thread is slowed by a factor, as if its CPU were that much slower: after each
// CPU second that the thread has used, it sleeps for (factor - 1) seconds.
#pragma once

#include <atomic>

#include "worker/collectives/transport.h"

namespace tilewright::bench {

// The functions that transfer or wait are called by one thread, which is started for this.
class SlowedTransport : public collectives::Transport {
 public:
  // `inner` outlives the object.
  SlowedTransport(collectives::Transport& inner, double factor) : inner_(inner), factor_(factor) {}

  Result<std::size_t> try_read(int peer, std::span<std::byte> bytes) override {
    slow_down();
    return inner_.try_read(peer, bytes);
  }
  Result<std::size_t> try_write(int peer, std::span<iovec> buffers) override {
    slow_down();
    return inner_.try_write(peer, buffers);
  }
  bool reports_late() const override { return inner_.reports_late(); }
  bool shares_memory(int peer) const override { return inner_.shares_memory(peer); }
  bool detects_changes(int peer) const override { return inner_.detects_changes(peer); }
  void send_last(int peer, std::span<iovec> buffers) override { inner_.send_last(peer, buffers); }
  void watch(int peer, short events, std::vector<pollfd>& fds) override {
    inner_.watch(peer, events, fds);
  }
  void watch_idle(int peer, std::vector<pollfd>& fds) const override {
    inner_.watch_idle(peer, fds);
  }
  void note_ready(std::span<const pollfd> fds) override { inner_.note_ready(fds); }
  void wait(std::vector<pollfd>& fds, MonotonicTime deadline) override {
    slow_down();
    inner_.wait(fds, deadline);
  }

  // That the thread has used by its last call, since it was started. Any thread may call it.
  double cpu_seconds() const { return cpu_seconds_; }

 private:
  void slow_down();

  collectives::Transport& inner_;
  const double factor_;
  std::atomic<double> cpu_seconds_ = 0;
  double owed_ = 0;  // seconds of sleep
};

}  // namespace tilewright::bench
