// A connected TCP stream. The descriptor is non-blocking; every blocking call takes a Wait.
// Expected failures are Errors with kPeerLost and a message that names the peer. Never raises
// SIGPIPE.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "common/net/address.h"
#include "common/net/tls.h"
#include "common/net/wait.h"

namespace tilewright::net {

class TlsStream;

// Not thread-safe. Without TLS, one thread may read while another writes.
class Socket {
 public:
  Socket();  // not connected
  // Takes ownership of a connected stream; sets O_NONBLOCK, TCP_NODELAY and keep-alive.
  explicit Socket(FileDescriptor fd);
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  bool connected() const { return fd_.get() >= 0; }
  int fd() const { return fd_.get(); }               // for poll loops; -1 when not connected
  const std::string& peer() const { return peer_; }  // "10.0.0.2:41234", for messages
  Result<Address> local_address() const;

  // Transfers all bytes, or returns an Error: the peer closed, the connection broke, the Wait
  // ended. After an Error part of a message may have been transferred: close the socket.
  Status read_exact(std::span<std::byte> bytes, const Wait& wait);
  Status write_all(std::span<const std::byte> bytes, const Wait& wait);
  // Gather and scatter; the call advances the vectors.
  Status read_exact(std::span<iovec> buffers, const Wait& wait);
  Status write_all(std::span<iovec> buffers, const Wait& wait);

  // Encrypts all further bytes with TLS (tls.h). The following reads and writes, or finish_tls(),
  // perform the handshake and report its errors.
  void connect_tls(const TlsKey& key);
  void connect_tls(const TlsKey& key, const TlsLimits& limits);
  // `received`: bytes read from the connection before TLS was detected. The handshake calls `find`.
  void accept_tls(FindTlsKey find, std::string_view received = {});
  void accept_tls(FindTlsKey find, std::string_view received, const TlsLimits& limits);
  bool encrypted() const { return tls_ != nullptr; }
  // Continues the handshake without blocking; true when it is complete.
  Result<bool> advance_tls();
  Status finish_tls(const Wait& wait);

  // The events to poll for if the caller waits for `events` (POLLIN, POLLOUT) after try_read or
  // try_write returned 0. They differ during a TLS handshake.
  short poll_events(short events) const;
  // Whether decrypted bytes are available that poll(2) does not report. A caller that reads until
  // try_read returns 0 before each poll does not need it.
  bool buffered() const;

  // For poll loops: transfer as much as possible without blocking; 0 if nothing. A closed peer is
  // an Error. Bytes that try_write did not take must be passed again before any others.
  Result<std::size_t> try_read(std::span<std::byte> bytes);
  Result<std::size_t> try_read(std::span<iovec> buffers);
  Result<std::size_t> try_write(std::span<const std::byte> bytes);
  Result<std::size_t> try_write(std::span<iovec> buffers);

  // Whether the peer closed its end or the connection broke; earlier bytes may still be unread.
  bool peer_closed() const;

  void shutdown_write();  // the peer reads the remaining bytes and then the end of the stream
  void close();

 private:
  Error lost(const std::string& what) const;
  Result<std::size_t> try_write_tls(std::span<const iovec> buffers);
  Status wait_for(short events, const Wait& wait, std::size_t done, std::size_t total) const;

  FileDescriptor fd_;
  std::string peer_;
  std::unique_ptr<TlsStream> tls_;
};

// Advances a gather or scatter list by `bytes`; returns the remaining list.
std::span<iovec> advance(std::span<iovec> buffers, std::size_t bytes);

inline iovec make_iovec(const void* data, std::size_t size) {
  return {const_cast<void*>(data), size};
}

}  // namespace tilewright::net
