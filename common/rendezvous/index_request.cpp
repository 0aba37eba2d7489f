#include "common/rendezvous/index_request.h"

#include "common/net/message.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/open_connection.h"

namespace tilewright::rendezvous {
namespace {

constexpr Duration kRetryPause = std::chrono::milliseconds(500);
// A coordinator that ends may break one proof. A wrong secret breaks each.
constexpr int kMaxFailedProofs = 2;

Result<std::string> exchange(net::Socket& socket, std::uint64_t agent_id, const net::Wait& wait) {
  if (Status status = net::write_message(socket, encode(IndexRequest{agent_id}), wait);
      !status.ok())
    return status.error();
  return net::read_message(socket, kMaxMessageBytes, wait);
}

}  // namespace

Result<int> request_worker_index(const net::Address& coordinator, const std::string& job_uid,
                                 const net::SecretKey& key, bool tls, std::uint64_t agent_id,
                                 const net::Wait& wait,
                                 const std::function<void(const std::string&)>& on_retry) {
  int failed_proofs = 0;
  std::string last_reason;
  while (true) {
    Error lost;
    Result<net::Socket> socket =
        open_connection(coordinator, job_uid, key, tls, wait, net::Retry::kUntilDeadline);
    if (socket.ok()) {
      failed_proofs = 0;
      const Result<std::string> text = exchange(*socket, agent_id, wait);
      if (text.ok()) {
        const Result<ServerMessage> answer = decode_server_message(*text);
        if (!answer.ok()) return answer.error();
        if (const auto* given = std::get_if<WorkerIndex>(&*answer)) return given->index;
        if (const auto* refuse = std::get_if<Refuse>(&*answer))
          return Error{ExitCode::kUnsupported, refuse->message};
        const auto* unavailable = std::get_if<Unavailable>(&*answer);
        if (unavailable == nullptr)
          return Error{ExitCode::kPeerLost,
                       "the coordinator answered with another message than an index"};
        lost = {ExitCode::kPeerLost, unavailable->reason};
      } else {
        lost = text.error();
      }
    } else {
      if (++failed_proofs == kMaxFailedProofs) return socket.error();
      lost = socket.error();
    }
    if (on_retry && lost.message != last_reason) on_retry(lost.message);
    last_reason = lost.message;
    if (!net::pause_for(wait, kRetryPause)) return lost;
  }
}

}  // namespace tilewright::rendezvous
