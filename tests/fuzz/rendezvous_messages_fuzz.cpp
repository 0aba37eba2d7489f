#include <cmath>

#include "common/base/check.h"
#include "common/net/address.h"
#include "common/net/message.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/snapshot.h"
#include "controller/policy/observe_rendezvous.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

using namespace rendezvous;

void check_assignment(const Assignment& assignment) {
  TW_CHECK(assignment.world == static_cast<int>(assignment.peers.size()), "world and peers differ");
  TW_CHECK(0 <= assignment.rank && assignment.rank < assignment.world, "rank {} of {}",
           assignment.rank, assignment.world);
  for (std::size_t i = 1; i < assignment.peers.size(); ++i) {
    TW_CHECK(assignment.peers[i - 1].who.process < assignment.peers[i].who.process,
             "ranks do not follow worker index and local rank");
  }
  const int own =
      assignment.peers[static_cast<std::size_t>(assignment.rank)].who.process.worker_index;
  int local_rank = 0;
  int local_world = 0;
  for (int rank = 0; rank < assignment.world; ++rank) {
    if (assignment.peers[static_cast<std::size_t>(rank)].who.process.worker_index != own) continue;
    if (rank < assignment.rank) ++local_rank;
    ++local_world;
  }
  TW_CHECK(assignment.local_rank == local_rank && assignment.local_world == local_world,
           "local rank {} of {}, expected {} of {}", assignment.local_rank, assignment.local_world,
           local_rank, local_world);
}

// What the operator shows of a member's report.
void check_report(const Progress& progress) {
  Snapshot snapshot;
  snapshot.progress = progress;
  constexpr std::int64_t kLargestBatch = std::int64_t{1} << 40;
  const policy::RendezvousView view = policy::view_of(snapshot, std::nullopt, kLargestBatch);
  TW_CHECK(!view.eta_seconds || *view.eta_seconds >= 0, "{} s are left", *view.eta_seconds);
}

void check_client_message(std::string_view text) {
  const Result<ClientMessage> decoded = decode_client_message(text);
  const bool holds_epoch = is_join_with_epoch(text);
  if (!decoded.ok()) return check_message(decoded.error().message);
  const auto* a_join = std::get_if<Join>(&*decoded);
  TW_CHECK(holds_epoch == (a_join != nullptr && a_join->held_assignment.has_value()),
           "two decoders disagree on whether a member holds an epoch");
  const std::string encoded = encode(*decoded);
  const Result<ClientMessage> again = decode_client_message(encoded);
  TW_CHECK(again.ok(), "an encoded message does not decode: {}", again.error().message);
  TW_CHECK(encode(*again) == encoded, "a message changes when it is sent twice");
  if (const auto* join = std::get_if<Join>(&*decoded); join != nullptr && join->held_assignment) {
    check_assignment(*join->held_assignment);
  }
  if (const auto* beat = std::get_if<Heartbeat>(&*decoded)) check_report(beat->progress);
}

void check_server_message(std::string_view text) {
  const Result<ServerMessage> decoded = decode_server_message(text);
  if (!decoded.ok()) return check_message(decoded.error().message);
  const std::string encoded = encode(*decoded);
  const Result<ServerMessage> again = decode_server_message(encoded);
  TW_CHECK(again.ok(), "an encoded message does not decode: {}", again.error().message);
  TW_CHECK(encode(*again) == encoded, "a message changes when it is sent twice");
  if (const auto* assignment = std::get_if<Assignment>(&*decoded)) {
    check_assignment(*assignment);
    for (const Peer& peer : assignment->peers) (void)net::parse_address(peer.address);
  }
}

// The messages of a stream do not depend on where it is cut.
void check_stream(std::string_view bytes) {
  const auto read = [&](std::size_t piece) {
    net::MessageReader reader(4096);
    std::vector<std::string> messages;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.append(bytes.substr(at, piece));
      while (true) {
        const auto message = reader.next();
        if (!message.ok()) return messages;
        if (!message->has_value()) break;
        messages.push_back(**message);
      }
    }
    return messages;
  };
  const auto messages = read(bytes.size() + 1);
  TW_CHECK(messages == read(1), "the messages depend on how they arrive");
  for (const std::string& message : messages) {
    check_client_message(message);
    check_server_message(message);
  }
}

}  // namespace

int fuzz_rendezvous_messages(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  if (const Result<Hello> hello = decode_hello(text); hello.ok()) {
    const Result<Hello> again = decode_hello(encode_hello(hello->job_uid, hello->version));
    TW_CHECK(again.ok() && again->job_uid == hello->job_uid && again->version == hello->version,
             "a hello changes");
  }
  check_client_message(text);
  check_server_message(text);
  check_stream(text);
  return 0;
}

}  // namespace tilewright::fuzz
