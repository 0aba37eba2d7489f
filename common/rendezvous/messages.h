// The rendezvous protocol: JSON objects, each sent as one message of common/net.
//
//   client -> server   hello: "tilewright-rendezvous <version> <job uid>", before the proof
//   both               the proof of common/net/handshake.h; its context is proof_context(uid)
//   client -> server   join first; then heartbeat, finished, leave
//   server -> client   assignment, epoch_ended, reform, refused, unavailable, acknowledged, pulse
// or, on a connection of an agent without a node rank (index_request.h):
//   client -> server   index_request
//   server -> client   index
// or, on a connection of an agent whose processes cannot be restarted (report_failure.h):
//   client -> server   agent_failed
//   server -> client   acknowledged
//
// The first join identifies the sender for the whole connection. All versions can read the hello,
// the proof and `refused`, so that a process of another version gets a reason; and from version 2
// on `unavailable` and whether a join is "holding" an epoch, so that a member keeps training when
// the coordinator is upgraded.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {

// Higher after every change that an earlier version would misunderstand.
inline constexpr int kProtocolVersion = 2;
inline constexpr int kFirstVersionWithUnavailable = 2;
inline constexpr std::size_t kMaxHelloBytes = 320;
inline constexpr std::size_t kMaxUidBytes = 253;
// Enough for an assignment of kMaxWorld peers with long addresses.
inline constexpr std::size_t kMaxMessageBytes = 1 << 20;

// Answers every heartbeat, so that the client detects a dead coordinator.
struct HeartbeatReply {
  bool running = false;          // a membership epoch is current; false from an earlier version
  Duration heartbeat_timeout{};  // Settings::heartbeat_timeout in ms; 0 from an earlier version
};

// The coordinator closes the connection for now, because a limit was exceeded or a member that
// holds an epoch has another version of the protocol. The client connects again after its longest
// pause.
struct Unavailable {
  std::string reason;
};

// An agent asks for the worker index of its processes. The same agent gets the same index again.
struct IndexRequest {
  std::uint64_t agent_id = 0;  // random
};
struct WorkerIndex {
  int index = 0;
};

// A process of an agent has failed in a way that a restart does not mend.
struct AgentFailed {
  std::string reason;
  std::optional<int> worker_index = std::nullopt;  // of its processes; nullopt: an earlier version
};

using ClientMessage = std::variant<Join, Heartbeat, Finished, Leave, IndexRequest, AgentFailed>;
using ServerMessage = std::variant<Assignment, EndEpoch, RequestReform, Refuse, Unavailable,
                                   Acknowledge, HeartbeatReply, WorkerIndex>;

// 1 to kMaxUidBytes letters, digits, '-', '_', '.' and ':'.
bool is_job_uid(std::string_view text);
struct Hello {
  int version = kProtocolVersion;
  std::string job_uid;
};
std::string encode_hello(std::string_view job_uid, int version = kProtocolVersion);
// Accepts every version. Errors of all decoders carry kPeerLost and do not name the peer.
Result<Hello> decode_hello(std::string_view text);
std::string proof_context(std::string_view job_uid);

std::string encode(const ClientMessage& message);
std::string encode(const ServerMessage& message);
// The message of an assignment is `before`, encode_peers() and `after`: the peers are most of it,
// and the same for all members of an epoch. `assignment` has no peers.
struct EncodedAssignment {
  std::string before;
  std::string after;
};
EncodedAssignment encode_without_peers(const Assignment& assignment);
std::string encode_peers(const std::vector<Peer>& peers);
// A message does not contain `who` or `to`, except for `who` in a join.
Result<ClientMessage> decode_client_message(std::string_view text);
Result<ServerMessage> decode_server_message(std::string_view text);
// Whether a message of any version is the join of a member that holds an epoch.
bool is_join_with_epoch(std::string_view text);

}  // namespace tilewright::rendezvous
