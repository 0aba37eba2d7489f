// Somebody on the way: passes on what goes over connections, keeps a copy and may alter a byte.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>

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
  // All that went over it so far, in whatever direction.
  std::string recorded() const {
    const std::scoped_lock lock(mutex_);
    return recorded_;
  }
  // The next byte that comes from the client is turned into another one.
  void alter_next_byte() { alter_ = true; }

 private:
  struct Link {
    Socket client, server;
    bool over = false;
  };

  void run() {
    std::list<Link> links;
    while (!stop_.signalled()) {
      std::vector<pollfd> fds{{listener_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
      for (const Link& link : links) {
        fds.push_back({link.client.fd(), POLLIN, 0});
        fds.push_back({link.server.fd(), POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 60'000);
      for (Link& link : links) {
        link.over = !pass(link.client, link.server, alter_) || !pass(link.server, link.client, no_);
      }
      links.remove_if([](const Link& link) { return link.over; });
      auto client = listener_.try_accept();
      if (!client.ok() || !client->connected()) continue;
      auto server = connect_to(target_, within(std::chrono::seconds(20)));
      if (server.ok()) links.push_back({std::move(client).value(), std::move(server).value()});
    }
  }

  // False when one of them is gone.
  bool pass(Socket& from, Socket& to, std::atomic<bool>& alter) {
    std::array<std::byte, 1 << 16> buffer;
    const auto got = from.try_read(buffer);
    if (!got.ok()) return false;
    if (*got == 0) return true;
    if (alter.exchange(false)) buffer[*got - 1] ^= std::byte{1};
    {
      const std::scoped_lock lock(mutex_);
      recorded_.append(reinterpret_cast<const char*>(buffer.data()), *got);
    }
    return to
        .write_all(std::span(std::as_const(buffer)).first(*got), within(std::chrono::seconds(20)))
        .ok();
  }

  const Address target_;
  Listener listener_;
  WakeUp stop_;
  mutable std::mutex mutex_;
  std::string recorded_;
  std::atomic<bool> alter_ = false, no_ = false;
  std::thread thread_;
};

}  // namespace tilewright::net
