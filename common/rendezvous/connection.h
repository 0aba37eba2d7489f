// One connection of the server: TLS where the peer begins it, hello, proof, then messages. It reads
// and writes without waiting and is driven by the server's loop; for this room only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/tls.h"
#include "common/rendezvous/messages.h"

namespace tilewright::rendezvous {

class Connection {
 public:
  // The key of a job; nullptr: there is no such job.
  using FindKey = std::function<const net::SecretKey*(const std::string& job_uid)>;

  Connection(net::Socket socket, MonotonicTime now, net::FindTlsKey find_tls_key);

  // Takes what has come; the whole messages of a peer that has proved itself are appended to
  // `messages`, also those that came before the Error that ends the connection.
  Status read(const FindKey& find_key, std::vector<std::string>& messages);
  // Sends what goes.
  Status write();
  void send(const ServerMessage& message);
  // The peer reads what was sent and then sees the end; closing at once could destroy it on the
  // way.
  void shutdown_write() { socket_.shutdown_write(); }

  int fd() const { return socket_.fd(); }
  const std::string& peer() const { return socket_.peer(); }
  bool wants_to_write() const { return !output_.empty(); }
  std::uint32_t events() const;  // what epoll has to watch
  bool encrypted() const { return socket_.encrypted(); }
  bool proved() const { return stage_ == Stage::kProved; }
  const std::string& job_uid() const { return job_uid_; }

  std::optional<MemberId> who;  // after its first join
  MonotonicTime opened;         // for the deadline of the proof and the first join
  // Set: what comes is ignored, the end is announced, and at this time it is closed at the latest.
  std::optional<MonotonicTime> ends;

 private:
  enum class Stage { kHello, kProof, kProved };
  Status take_bytes(std::string_view bytes, const FindKey& find_key,
                    std::vector<std::string>& messages);
  Status take_input(const FindKey& find_key, std::vector<std::string>& messages);
  // The first `size` bytes of the input; nothing while fewer have come.
  std::optional<std::string> take(std::size_t size);

  net::Socket socket_;
  Stage stage_ = Stage::kHello;
  net::FindTlsKey find_tls_key_;  // until the peer has said something
  std::string input_;             // before the proof is complete
  std::string job_uid_;
  std::optional<net::Handshake> handshake_;
  net::MessageReader reader_{kMaxMessageBytes};
  std::string output_;
};

}  // namespace tilewright::rendezvous
