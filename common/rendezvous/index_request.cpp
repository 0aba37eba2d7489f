#include "common/rendezvous/index_request.h"

#include "common/net/message.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/open_connection.h"

namespace tilewright::rendezvous {

Result<int> request_worker_index(const net::Address& coordinator, const std::string& job_uid,
                                 const net::SecretKey& key, bool tls, std::uint64_t agent_id,
                                 const net::Wait& wait) {
  Result<net::Socket> socket =
      open_connection(coordinator, job_uid, key, tls, wait, net::Retry::kUntilDeadline);
  if (!socket.ok()) return socket.error();
  if (Status status = net::write_message(*socket, encode(IndexRequest{agent_id}), wait);
      !status.ok())
    return status.error();
  const Result<std::string> text = net::read_message(*socket, kMaxMessageBytes, wait);
  if (!text.ok()) return text.error();
  const Result<ServerMessage> answer = decode_server_message(*text);
  if (!answer.ok()) return answer.error();
  if (const auto* given = std::get_if<WorkerIndex>(&*answer)) return given->index;
  if (const auto* refuse = std::get_if<Refuse>(&*answer))
    return Error{ExitCode::kUnsupported, refuse->message};
  if (const auto* unavailable = std::get_if<Unavailable>(&*answer))
    return Error{ExitCode::kPeerLost, unavailable->reason};
  return Error{ExitCode::kPeerLost, "the coordinator answered with another message than an index"};
}

}  // namespace tilewright::rendezvous
