#include "common/rendezvous/index_request.h"

#include <optional>
#include <string_view>
#include <utility>

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

// nullopt: the coordinator is unavailable, for the reason.
std::optional<Result<int>> index_in(std::string_view text, std::string& reason) {
  const Result<ServerMessage> answer = decode_server_message(text);
  if (!answer.ok()) return answer.error();
  if (const auto* given = std::get_if<WorkerIndex>(&*answer)) return given->index;
  if (const auto* refuse = std::get_if<Refuse>(&*answer))
    return Error{ExitCode::kUnsupported, refuse->message};
  if (const auto* unavailable = std::get_if<Unavailable>(&*answer)) {
    reason = unavailable->reason;
    return std::nullopt;
  }
  return Error{ExitCode::kPeerLost, "the coordinator answered with another message than an index"};
}

}  // namespace

Result<int> request_worker_index(const net::Address& coordinator, const std::string& job_uid,
                                 const net::SecretKey& key, bool tls, std::uint64_t agent_id,
                                 const net::Wait& wait,
                                 const std::function<void(const std::string&)>& on_retry) {
  int failed_proofs = 0;
  std::string last_reason;
  while (true) {
    Result<net::Socket> socket =
        open_connection(coordinator, job_uid, key, tls, wait, net::Retry::kUntilDeadline);
    failed_proofs = socket.ok() ? 0 : failed_proofs + 1;
    if (failed_proofs == kMaxFailedProofs) return socket.error();
    const Result<std::string> text =
        socket.ok() ? exchange(*socket, agent_id, wait) : Result<std::string>(socket.error());
    Error lost{ExitCode::kPeerLost, ""};
    if (!text.ok()) {
      lost = text.error();
    } else if (auto index = index_in(*text, lost.message)) {
      return *std::move(index);
    }
    if (on_retry && lost.message != last_reason) on_retry(lost.message);
    last_reason = lost.message;
    if (!net::pause_for(wait, kRetryPause)) return lost;
  }
}

}  // namespace tilewright::rendezvous
