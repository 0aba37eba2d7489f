#include "common/rendezvous/open_connection.h"

#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/net/tls.h"
#include "common/rendezvous/messages.h"

namespace tilewright::rendezvous {

Result<net::Socket> open_connection(const net::Address& coordinator, const std::string& job_uid,
                                    const net::SecretKey& key, bool tls, const net::Wait& wait,
                                    net::Retry retry) {
  Result<net::Socket> made = net::connect_to(coordinator, wait, retry);
  if (!made.ok()) return made.error();
  net::Socket socket = std::move(made).value();
  if (tls) {
    socket.connect_tls(net::TlsKey(key, proof_context(job_uid)));
    if (Status status = socket.finish_tls(wait); !status.ok()) return status.error();
  }
  if (Status status = net::write_message(socket, encode_hello(job_uid), wait); !status.ok())
    return status.error();
  if (Status status =
          net::authenticate(socket, net::Role::kClient, key, proof_context(job_uid), wait);
      !status.ok())
    return status.error();
  return socket;
}

}  // namespace tilewright::rendezvous
