// A man-in-the-middle relay: forwards connections, records their bytes and can alter one byte.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "common/net/connect.h"
#include "common/net/socket.h"

namespace tilewright::net {

class Relay {
 public:
  explicit Relay(Address target)
      : target_(std::move(target)), listener_(Listener::bind({"127.0.0.1", 0}).or_throw()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_.signal();
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const Address& address() const { return listener_.local_address(); }
  // All bytes so far, in both directions.
  std::string recorded() const {
    const std::scoped_lock lock(mutex_);
    return recorded_;
  }
  // Breaks all connections with a TCP reset on both sides.
  void reset_connections() {
    reset_ = true;
    wake_.signal();
  }
  // From now on the bytes of these connections go nowhere, and no end hears that the other closes.
  void mute_connections() {
    mute_ = true;
    wake_.signal();
  }
  // How often `part` has been delivered.
  std::size_t delivered(const std::string& part) const {
    const std::scoped_lock lock(mutex_);
    return count_of(part);
  }
  // Waits until it has been so often. False: not in time.
  bool delivers(const std::string& part, std::size_t count, Duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return count_of(part) >= count; });
  }
  // Alters the last byte of the next read from the client.
  void alter_next_byte() { alter_ = true; }

 private:
  struct Link {
    Socket client, server;
    bool over = false;
    bool muted = false;
  };

  void run() {
    std::list<Link> links;
    while (!stop_.signalled()) {
      std::vector<pollfd> fds{
          {listener_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
      for (const Link& link : links) {
        if (link.muted) continue;
        fds.push_back({link.client.fd(), POLLIN, 0});
        fds.push_back({link.server.fd(), POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 60'000);
      wake_.clear();
      if (reset_.exchange(false)) {
        for (Link& link : links) {
          send_reset_on_close(link.client);
          send_reset_on_close(link.server);
        }
        links.clear();
      }
      if (mute_.exchange(false)) {
        for (Link& link : links) link.muted = true;
      }
      for (Link& link : links) {
        if (link.muted) continue;
        link.over =
            !forward(link.client, link.server, alter_) || !forward(link.server, link.client, no_);
      }
      links.remove_if([](const Link& link) { return link.over; });
      auto client = listener_.try_accept();
      if (!client.ok() || !client->connected()) continue;
      auto server = connect_to(target_, within(std::chrono::seconds(20)));
      if (server.ok()) links.push_back({std::move(client).value(), std::move(server).value()});
    }
  }

  std::size_t count_of(const std::string& part) const {
    std::size_t count = 0;
    for (std::size_t at = recorded_.find(part); at != std::string::npos;
         at = recorded_.find(part, at + part.size())) {
      ++count;
    }
    return count;
  }

  static void send_reset_on_close(const Socket& socket) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  // False if either end has closed.
  bool forward(Socket& from, Socket& to, std::atomic<bool>& alter) {
    std::array<std::byte, 1 << 16> buffer;
    const auto got = from.try_read(buffer);
    if (!got.ok()) return false;
    if (*got == 0) return true;
    if (alter.exchange(false)) buffer[*got - 1] ^= std::byte{1};
    const bool written =
        to.write_all(std::span(std::as_const(buffer)).first(*got), within(std::chrono::seconds(20)))
            .ok();
    const std::scoped_lock lock(mutex_);
    recorded_.append(reinterpret_cast<const char*>(buffer.data()), *got);
    changed_.notify_all();
    return written;
  }

  const Address target_;
  Listener listener_;
  WakeUp stop_, wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string recorded_;
  std::atomic<bool> alter_ = false, no_ = false, reset_ = false, mute_ = false;
  std::thread thread_;
};

}  // namespace tilewright::net
