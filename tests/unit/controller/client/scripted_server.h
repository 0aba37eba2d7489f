// An HTTP or HTTPS server for tests. A script sends each response byte by byte, with any chunking,
// incomplete bodies, silence or resets.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/wait.h"

namespace tilewright::kube {

// A deadline that only ends a test that would otherwise hang.
inline net::Wait soon() { return net::within(std::chrono::seconds(20)); }

struct ScriptedRequest {
  int index = 0;       // of all requests, from 0
  int connection = 0;  // from 0
  std::string method, target, body;
  std::map<std::string, std::string> headers;  // names in lower case
};

// A connection as the script uses it.
class ScriptedConnection {
 public:
  ScriptedConnection(int fd, SSL* tls) : fd_(fd), tls_(tls) {}
  ~ScriptedConnection() {
    if (tls_) SSL_free(tls_);
    close(fd_);
  }
  ScriptedConnection(const ScriptedConnection&) = delete;
  ScriptedConnection& operator=(const ScriptedConnection&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty() && open_) {
      const ssize_t sent = tls_ ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                                : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        open_ = false;
        return;
      }
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void head(int status, const std::string& headers) {
    send(fmt::format("HTTP/1.1 {} Scripted\r\nContent-Type: application/json\r\n{}\r\n", status,
                     headers));
  }
  void answer(int status, std::string_view body, const std::string& headers = "") {
    head(status, fmt::format("{}Content-Length: {}\r\n", headers, body.size()));
    send(body);
  }
  void begin_chunks(int status = 200) { head(status, "Transfer-Encoding: chunked\r\n"); }
  void chunk(std::string_view bytes) {
    send(fmt::format("{:x}\r\n", bytes.size()));
    send(bytes);
    send("\r\n");
  }
  void end_chunks() { send("0\r\n\r\n"); }
  // Stops reading requests from the connection.
  void hang_up() { open_ = false; }
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    open_ = false;
  }
  // Waits until the client closes the connection or the server stops.
  void await_close() {
    char byte = 0;
    while (read(&byte, 1) > 0) {
    }
    open_ = false;
  }

  // False at the end of the connection.
  bool read_request(ScriptedRequest& request) {
    if (!open_) return false;
    std::size_t end = 0;
    while ((end = pending_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) return false;
    }
    parse_head(request, pending_.substr(0, end));
    pending_.erase(0, end + 4);
    const auto length = request.headers.find("content-length");
    const std::size_t size = length == request.headers.end() ? 0 : std::stoul(length->second);
    while (pending_.size() < size) {
      if (!fill()) return false;
    }
    request.body = pending_.substr(0, size);
    pending_.erase(0, size);
    return true;
  }
  int fd() const { return fd_; }
  // The common name of the client certificate; empty if there is none.
  std::string client_name() const {
    const std::unique_ptr<X509, decltype(&X509_free)> shown(
        tls_ ? SSL_get1_peer_certificate(tls_) : nullptr, X509_free);
    char name[256] = "";
    if (shown) {
      X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName, name,
                                sizeof name);
    }
    return name;
  }

 private:
  ssize_t read(char* bytes, std::size_t size) {
    if (tls_) return SSL_read(tls_, bytes, static_cast<int>(size));
    return recv(fd_, bytes, size, 0);
  }
  bool fill() {
    char bytes[4096];
    const ssize_t got = read(bytes, sizeof bytes);
    if (got <= 0) return false;
    pending_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  static void parse_head(ScriptedRequest& request, const std::string& head) {
    const auto line_end = head.find("\r\n");
    const std::string line = head.substr(0, line_end);
    request.method = line.substr(0, line.find(' '));
    const auto start = request.method.size() + 1;
    request.target = line.substr(start, line.find(' ', start) - start);
    request.headers.clear();
    std::string_view rest = std::string_view(head).substr(std::min(line_end, head.size()));
    while (rest.starts_with("\r\n")) {
      rest.remove_prefix(2);
      const auto header = rest.substr(0, rest.find("\r\n"));
      const auto colon = header.find(':');
      std::string name(header.substr(0, colon));
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      auto value = header.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      request.headers[name] = std::string(value);
      rest.remove_prefix(header.size());
    }
  }

  const int fd_;
  SSL* const tls_;
  bool open_ = true;
  std::string pending_;
};

class ScriptedServer {
 public:
  using Script = std::function<void(ScriptedConnection&, const ScriptedRequest&)>;

  // `script` is called for each request, from one thread per connection. `tls` is not owned.
  explicit ScriptedServer(Script script, SSL_CTX* tls = nullptr)
      : script_(std::move(script)), tls_(tls), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a closed connection without MSG_NOSIGNAL
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool bound = bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       listen(listener_, 64) == 0 &&
                       getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    EXPECT_TRUE(bound);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stop_.signal();
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const {
    return fmt::format("{}://127.0.0.1:{}", tls_ ? "https" : "http", port_);
  }

  std::vector<ScriptedRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // Waits until `count` requests have arrived.
  bool await_requests(std::size_t count) const {
    std::unique_lock lock(mutex_);
    return arrived_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return requests_.size() >= count; });
  }

 private:
  void accept_all() {
    while (net::wait_ready(listener_, POLLIN, net::within(std::chrono::hours(1), &stop_)) ==
           net::Ready::kYes) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      // Head and body are two writes: with Nagle's algorithm the second waits for an
      // acknowledgement.
      const int enabled = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof enabled);
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      threads_.emplace_back(
          [this, fd, number = static_cast<int>(threads_.size())] { serve(fd, number); });
    }
  }
  void serve(int fd, int number) {
    SSL* tls = nullptr;
    bool ready = true;
    if (tls_) {
      tls = SSL_new(tls_);
      SSL_set_fd(tls, fd);
      ready = SSL_accept(tls) == 1;
    }
    {
      ScriptedConnection connection(fd, tls);
      ScriptedRequest request;
      while (ready && connection.read_request(request)) {
        request.connection = number;
        {
          const std::lock_guard lock(mutex_);
          request.index = static_cast<int>(requests_.size());
          requests_.push_back(request);
          arrived_.notify_all();
        }
        script_(connection, request);
      }
      const std::lock_guard lock(mutex_);
      std::erase(open_, fd);  // before the descriptor is reused
    }
  }

  const Script script_;
  SSL_CTX* const tls_;
  const int listener_;
  int port_ = 0;
  net::WakeUp stop_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::vector<ScriptedRequest> requests_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace tilewright::kube
