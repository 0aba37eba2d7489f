// What members and coordinator say to each other: JSON objects, one a message of common/net.
//
//   client -> server   hello: "tilewright-rendezvous 1 <job uid>", before anything is proved
//   both               the proof of common/net/secret.h; its context is proof_context(uid)
//   client -> server   join, first of all; then heartbeat, finished, leave
//   server -> client   assignment, epoch_ended, reform, refused, acknowledged, pulse
//
// Who speaks is said by join and holds for the connection.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {

inline constexpr std::size_t kMaxHelloBytes = 320;
inline constexpr std::size_t kMaxUidBytes = 253;
// An assignment of kMaxWorld peers with long addresses has room.
inline constexpr std::size_t kMaxMessageBytes = 1 << 20;

// The answer to every heartbeat: the coordinator is alive.
struct Pulse {};

using ClientMessage = std::variant<Join, Heartbeat, Finished, Leave>;
using ServerMessage = std::variant<Assignment, EndEpoch, AskReform, Refuse, Acknowledge, Pulse>;

// 1 to kMaxUidBytes letters, digits, '-', '_', '.' and ':'.
bool is_job_uid(std::string_view text);
std::string encode_hello(std::string_view job_uid);
// The job's uid. Errors of all decoders carry kPeerLost and do not name the peer.
Result<std::string> decode_hello(std::string_view text);
std::string proof_context(std::string_view job_uid);

std::string encode(const ClientMessage& message);
std::string encode(const ServerMessage& message);
// The members of a message that say who speaks or listens (`who`, `to`) are not sent, but for join.
Result<ClientMessage> decode_client_message(std::string_view text);
Result<ServerMessage> decode_server_message(std::string_view text);

}  // namespace tilewright::rendezvous
