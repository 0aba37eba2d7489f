#include "common/rendezvous/report_failure.h"

#include "common/net/message.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/open_connection.h"

namespace tilewright::rendezvous {

Status report_failure(const net::Address& coordinator, const std::string& job_uid,
                      const net::SecretKey& key, bool tls, int worker_index,
                      const std::string& reason, const net::Wait& wait) {
  Result<net::Socket> socket = open_connection(coordinator, job_uid, key, tls, wait);
  if (!socket.ok()) return socket.error();
  if (Status sent = net::write_message(*socket, encode(AgentFailed{reason, worker_index}), wait);
      !sent.ok())
    return sent;
  const Result<std::string> answer = net::read_message(*socket, kMaxMessageBytes, wait);
  return answer.ok() ? Status() : Status(answer.error());
}

}  // namespace tilewright::rendezvous
