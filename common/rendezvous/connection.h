// One connection of the server: TLS if the peer starts it, hello, proof, then messages. It never
// blocks; the server's loop drives it. Private to this module.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/tls.h"
#include "common/rendezvous/limits.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/send_queue.h"

namespace tilewright::rendezvous {

class Connection {
 public:
  // The key of a job; nullptr: no such job.
  using FindKey = std::function<const net::SecretKey*(const std::string& job_uid)>;

  Connection(net::Socket socket, MonotonicTime now, net::FindTlsKey find_tls_key);

  // Reads what has arrived. Appends the complete messages of an authenticated peer to `messages`,
  // including those received before an Error. An Error ends the connection.
  Status read(const FindKey& find_key, std::vector<std::string>& messages);
  // Sends as much of the queued output as the socket accepts.
  Status write();
  void send(const ServerMessage& message);
  // `peers`: encode_peers() of the assignment's epoch.
  void send(const EncodedAssignment& assignment, const SharedText& peers);
  // Half-closes the connection: the peer reads the sent bytes and then the end of the stream. A
  // full close could discard bytes in flight.
  void shutdown_write() { socket_.shutdown_write(); }

  int fd() const { return socket_.fd(); }
  const std::string& peer() const { return socket_.peer(); }
  bool wants_to_write() const { return !output_.empty(); }
  std::uint32_t events() const;  // for epoll
  bool encrypted() const { return socket_.encrypted(); }
  bool authenticated() const { return stage_ == Stage::kAuthenticated; }
  const std::string& job_uid() const { return hello_.job_uid; }
  int protocol_version() const { return hello_.version; }

  // Memory of messages that are incomplete or that the peer has not read, without shared texts.
  std::size_t buffered_bytes() const {
    return input_.capacity() + reader_.capacity() + output_.memory();
  }
  // With shared texts, of which an earlier epoch's may be held by this connection alone.
  std::size_t held_bytes() const { return buffered_bytes() + output_.shared_bytes(); }
  // Discards what is buffered and sends the reason, for a connection that the caller then closes.
  void reject(const std::string& reason);
  bool peer_closed() const { return socket_.peer_closed(); }

  std::optional<MemberId> who;   // after its first join
  bool waits_for_index = false;  // of an agent, whose request is not answered yet
  MonotonicTime opened;          // start of Server::Options::join_timeout
  std::shared_ptr<Usage> usage;  // of its job, since the proof
  std::size_t accounted = 0;     // its share of usage->buffered_bytes
  // When set: input is ignored, the write side is shut down, and the connection closes by then.
  std::optional<MonotonicTime> close_deadline;

 private:
  enum class Stage { kHello, kAuthenticating, kAuthenticated };
  Status take_bytes(std::string_view bytes, const FindKey& find_key,
                    std::vector<std::string>& messages);
  Status take_input(const FindKey& find_key, std::vector<std::string>& messages);
  // The first `size` bytes of the input; nullopt while fewer have arrived.
  std::optional<std::string> take(std::size_t size);

  net::Socket socket_;
  Stage stage_ = Stage::kHello;
  net::FindTlsKey find_tls_key_;  // until the first bytes show whether the peer uses TLS
  std::string input_;             // until the proof is complete
  Hello hello_;
  std::optional<net::Handshake> handshake_;
  net::MessageReader reader_{kMaxMessageBytes};
  SendQueue output_;
};

}  // namespace tilewright::rendezvous
