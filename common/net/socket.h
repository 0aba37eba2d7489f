// A connected TCP stream. Non-blocking underneath; every blocking call takes a Wait. Expected
// failures are Errors with kPeerLost and one sentence that names the peer. Never raises SIGPIPE.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "common/net/address.h"
#include "common/net/wait.h"

namespace tilewright::net {

class TlsKey;
class TlsStream;
struct TlsLimits;
using FindTlsKey = std::function<const TlsKey*(std::string_view identity)>;

// Not thread-safe, except that one thread may read while another writes; under TLS not that either.
class Socket {
 public:
  Socket();  // not connected
  // Takes over a connected stream and makes it non-blocking, with TCP_NODELAY and keep-alive.
  explicit Socket(FileDescriptor fd);
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  bool connected() const { return fd_.get() >= 0; }
  int fd() const { return fd_.get(); }               // for poll loops; -1 when not connected
  const std::string& peer() const { return peer_; }  // "10.0.0.2:41234", for sentences
  Result<Address> local_address() const;

  // All bytes or an Error: the peer closed, the connection broke, the Wait ended. After an Error
  // the stream may stand inside a message and is good for nothing but closing.
  Status read_exact(std::span<std::byte> bytes, const Wait& wait);
  Status write_all(std::span<const std::byte> bytes, const Wait& wait);
  // Gather and scatter; the vectors are used up (advanced) by the call.
  Status read_exact(std::span<iovec> pieces, const Wait& wait);
  Status write_all(std::span<iovec> pieces, const Wait& wait);

  // From here on all bytes go through TLS (tls.h). The handshake is done by whatever reads and
  // writes follow, or by finish_tls(); what is wrong with the peer shows there.
  void connect_tls(const TlsKey& key);
  void connect_tls(const TlsKey& key, const TlsLimits& limits);
  // `received`: what was read from the connection before it was known to be TLS. `find` is called
  // while the handshake goes on.
  void accept_tls(FindTlsKey find, std::string_view received = {});
  void accept_tls(FindTlsKey find, std::string_view received, const TlsLimits& limits);
  bool encrypted() const { return tls_ != nullptr; }
  // Takes the handshake as far as it goes without waiting; true when it is complete.
  Result<bool> advance_tls();
  Status finish_tls(const Wait& wait);

  // What poll(2) has to watch for a caller that waits for `events` (POLLIN, POLLOUT) after try_read
  // or try_write gave 0; during a TLS handshake they differ.
  short poll_events(short events) const;
  // Bytes are here that poll(2) does not announce. Whoever reads until try_read gives 0 before it
  // polls need not ask.
  bool buffered() const;

  // What goes without waiting, 0 when nothing does: for poll loops. A closed peer is an Error. What
  // try_write did not take is to be offered again before anything else.
  Result<std::size_t> try_read(std::span<std::byte> bytes);
  Result<std::size_t> try_read(std::span<iovec> pieces);
  Result<std::size_t> try_write(std::span<const std::byte> bytes);
  Result<std::size_t> try_write(std::span<iovec> pieces);

  // True when the peer closed its end or the connection broke; bytes it sent before may still be
  // waiting to be read.
  bool peer_closed() const;

  void shutdown_write();  // the peer reads to the end and then sees it closed
  void close();

 private:
  Error lost(const std::string& what) const;
  Result<std::size_t> try_write_tls(std::span<const iovec> pieces);
  Status wait_for(short events, const Wait& wait, std::size_t done, std::size_t total) const;

  FileDescriptor fd_;
  std::string peer_;
  std::unique_ptr<TlsStream> tls_;
};

// Advances a gather or scatter list by `bytes`; returns what is left of it.
std::span<iovec> advance(std::span<iovec> pieces, std::size_t bytes);

inline iovec piece(const void* data, std::size_t size) { return {const_cast<void*>(data), size}; }

enum class Retry { kNo, kUntilDeadline };

// Resolves and connects. kUntilDeadline tries again (after 10 ms, doubling to 500 ms) while the
// peer refuses or its name does not resolve.
Result<Socket> connect_to(const Address& address, const Wait& wait, Retry retry = Retry::kNo);

class Listener {
 public:
  // Port 0 picks a free one; no host is all addresses, of IPv4 and IPv6. Errors carry kUsage: an
  // unknown host, an address in use.
  static Result<Listener> bind(const Address& address, int backlog = 128);
  // The bound address, with the port that was picked; the host is numeric ("::" for all, or
  // "0.0.0.0" where the system knows no IPv6).
  const Address& local_address() const { return local_; }
  int fd() const { return fd_.get(); }
  Result<Socket> accept(const Wait& wait);
  // A Socket that is not connected when nobody waits.
  Result<Socket> try_accept();

 private:
  FileDescriptor fd_;
  Address local_;
};

}  // namespace tilewright::net
