#include "common/rendezvous/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

namespace tilewright::rendezvous {
namespace {

using ::testing::HasSubstr;

Assignment some_assignment() {
  return {
      7,    1, 2, 0, 1, 40, {{{{0, 0}, 11}, "10.0.0.1:29500"}, {{{3, 1}, 12}, "[fd00::1]:29501"}},
      "amx"};
}

template <typename T>
T client_round_trip(const T& message) {
  return std::get<T>(decode_client_message(encode(ClientMessage(message))).value());
}
template <typename T>
T server_round_trip(const T& message) {
  return std::get<T>(decode_server_message(encode(ServerMessage(message))).value());
}

TEST(Messages, JoinRoundTrips) {
  const MemberId who{{65535, 1023}, std::numeric_limits<std::uint64_t>::max()};
  const Join fresh = client_round_trip(Join{who, "10.0.0.1:1", {"avx2", "amx"}, 12, 5, {}});
  EXPECT_EQ(fresh.who, who);
  EXPECT_EQ(fresh.address, "10.0.0.1:1");
  EXPECT_EQ(fresh.isas, (std::vector<std::string>{"avx2", "amx"}));
  EXPECT_EQ(fresh.last_checkpoint_step, 12);
  EXPECT_EQ(fresh.after_epoch, 5u);
  EXPECT_FALSE(fresh.held_assignment);
  EXPECT_EQ(client_round_trip(Join{who, "a:1", {"amx"}, -1, 0, some_assignment()}).held_assignment,
            some_assignment());
}

TEST(Messages, HeartbeatRoundTripsIncludingNonFiniteNumbers) {
  Progress progress{10, 100, 0.5, std::nan(""), 1e-4, 12.5, 3000, 8, "training", {{"f1", 0.25}}};
  const Heartbeat beat = client_round_trip(Heartbeat{{}, 3, progress});
  EXPECT_EQ(beat.epoch, 3u);
  EXPECT_TRUE(std::isnan(beat.progress.loss));
  Progress received = beat.progress;
  received.loss = progress.loss = 0;
  EXPECT_EQ(received, progress);
}

TEST(Messages, ServerMessagesRoundTrip) {
  EXPECT_EQ(server_round_trip(some_assignment()), some_assignment());
  const EndEpoch end = server_round_trip(EndEpoch{{}, 9, "worker 1 was lost", true});
  EXPECT_EQ(end.epoch, 9u);
  EXPECT_EQ(end.reason, "worker 1 was lost");
  EXPECT_TRUE(end.job_finished);
  EXPECT_EQ(server_round_trip(RequestReform{{}, 4, "why"}).epoch, 4u);
  EXPECT_EQ(server_round_trip(Refuse{{}, "no", true}).message, "no");
  EXPECT_FALSE(server_round_trip(Refuse{{}, "no"}).replaced);
  EXPECT_TRUE(server_round_trip(Refuse{{}, "no", false, true}).replaced);
  EXPECT_FALSE(
      std::get<Refuse>(
          decode_server_message(R"({"type": "refused", "sentence": "no", "job_finished": false})")
              .value())
          .replaced)
      << "of an earlier version";
  const HeartbeatReply reply = server_round_trip(HeartbeatReply{true, std::chrono::seconds(6)});
  EXPECT_TRUE(reply.running);
  EXPECT_EQ(reply.heartbeat_timeout, std::chrono::seconds(6));
  EXPECT_FALSE(
      decode_server_message(R"({"type": "pulse", "heartbeat_timeout_ms": 86400001})").ok());
  EXPECT_FALSE(
      std::get<HeartbeatReply>(decode_server_message(R"({"type": "pulse"})").value()).running)
      << "of an earlier version";
  EXPECT_EQ(client_round_trip(AgentFailed{"why"}).reason, "why");
  EXPECT_EQ(client_round_trip(AgentFailed{"why"}).worker_index, std::nullopt)
      << "of an earlier version";
  EXPECT_EQ(client_round_trip(AgentFailed{"why", 7}).worker_index, 7);
  EXPECT_EQ(server_round_trip(Unavailable{"too many"}).reason, "too many");
  EXPECT_EQ(server_round_trip(WorkerIndex{kMaxWorkerIndex}).index, kMaxWorkerIndex);
  const std::uint64_t id = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(client_round_trip(IndexRequest{id}).agent_id, id);
  EXPECT_FALSE(decode_server_message(R"({"type": "index", "index": 65536})").ok());
}

TEST(Messages, InvalidUtf8AndLongReasonsAreSanitized) {
  const Leave leave = client_round_trip(Leave{{}, "a\xff" + std::string(5000, 'b')});
  EXPECT_THAT(leave.reason, HasSubstr("bbb"));
  EXPECT_LT(leave.reason.size(), 2100u);
}

TEST(Messages, TheLargestAssignmentFitsAMessage) {
  Assignment assignment{kMaxEpoch / 2, 0, kMaxWorld, 0, 1, 1LL << 48, {}, std::string(32, 'x')};
  for (int i = 1; i <= kMaxWorld; ++i)
    assignment.peers.push_back({{{kMaxWorkerIndex - kMaxWorld + i, kMaxLocalRank}, ~0ULL},
                                std::string(259, 'h') + ":65535"});
  const std::string text = encode(ClientMessage(Join{{}, "a:1", {"amx"}, 0, 0, assignment}));
  EXPECT_LE(text.size(), kMaxMessageBytes);
  EXPECT_TRUE(decode_client_message(text).ok());
}

TEST(Messages, AnAssignmentEncodedInPartsIsTheSameMessage) {
  Assignment assignment = some_assignment();
  assignment.isa = R"("peers":[])";
  const std::string whole = encode(ServerMessage(assignment));
  const std::string peers = encode_peers(std::exchange(assignment.peers, {}));
  const EncodedAssignment parts = encode_without_peers(assignment);
  EXPECT_EQ(parts.before + peers + parts.after, whole);
}

TEST(Messages, DecodeErrorsNameTheField) {
  const auto join_with = [](const std::string& from, const std::string& to) {
    std::string text = encode(ClientMessage(Join{{{1, 2}, 3}, "a:1", {"amx"}, 4, 5, {}}));
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return decode_client_message(text.replace(at, from.size(), to)).error().message;
  };
  EXPECT_THAT(join_with("\"index\":1", "\"index\":-1"),
              HasSubstr("index is not an integer from 0"));
  EXPECT_THAT(join_with("\"index\":1", "\"index\":65536"), HasSubstr("index"));
  EXPECT_THAT(join_with("\"index\":1", "\"index\":1.5"), HasSubstr("index"));
  EXPECT_THAT(join_with("\"slot\":2", "\"slot\":18446744073709551615"), HasSubstr("slot"));
  EXPECT_THAT(join_with("\"slot\"", "\"slut\""), HasSubstr("slot is missing"));
  EXPECT_THAT(join_with("\"after_epoch\":5", "\"after_epoch\":281474976710657"),
              HasSubstr("after_epoch is not an integer from 0 to 281474976710656"));
  EXPECT_THAT(join_with("[\"amx\"]", "[\"" + std::string(99, 'x') + "\"]"),
              HasSubstr("isas has an element that is not a string of at most 32 bytes"));
  EXPECT_THAT(join_with("[\"amx\"]", "[]"), HasSubstr("isas has no elements"));
  EXPECT_THAT(join_with("join", "jion"), HasSubstr("jion"));
  EXPECT_THAT(join_with("{", "["), HasSubstr("not a JSON object"));
}

TEST(Messages, RejectsAnAssignmentWithWrongPeerCount) {
  Assignment assignment = some_assignment();
  assignment.peers.pop_back();
  EXPECT_THAT(decode_server_message(encode(ServerMessage(assignment))).error().message,
              HasSubstr("peers has 1 entries, expected 2"));
}

TEST(Messages, RejectsRanksThatDoNotFollowTheProcesses) {
  const auto error_of = [](const Assignment& assignment) {
    const auto decoded = decode_server_message(encode(ServerMessage(assignment)));
    return decoded.ok() ? "" : decoded.error().message;
  };
  Assignment good;
  good.epoch = 3;
  good.rank = 1;
  good.world = 3;
  good.local_rank = 1;
  good.local_world = 2;
  good.isa = "amx";
  good.peers = {{{{0, 0}, 1}, "a:1"}, {{{0, 1}, 2}, "a:2"}, {{{1, 0}, 3}, "b:1"}};
  EXPECT_EQ(error_of(good), "");
  Assignment twice = good;
  twice.peers[1].who = twice.peers[0].who;
  EXPECT_THAT(error_of(twice), HasSubstr("peers has worker 0 before worker 0"));
  Assignment unsorted = good;
  std::swap(unsorted.peers[1], unsorted.peers[2]);
  EXPECT_THAT(error_of(unsorted), HasSubstr("peers has worker 1 before worker 0 (process 1)"));
  Assignment local = good;
  local.local_rank = 0;
  EXPECT_THAT(error_of(local), HasSubstr("local_rank is 0 of 2, expected 1 of 2"));
  // As in the join of a member that reconnects.
  Join join{good.peers[1].who, "a:2", {"amx"}, -1, 0, unsorted};
  EXPECT_FALSE(decode_client_message(encode(ClientMessage(join))).ok());
}

TEST(Messages, HelloRoundTripsOrIsRejected) {
  const Hello hello = decode_hello(encode_hello("3f2a-77")).value();
  EXPECT_EQ(hello.job_uid, "3f2a-77");
  EXPECT_EQ(hello.version, kProtocolVersion);
  EXPECT_EQ(decode_hello("tilewright-rendezvous 12 a").value().version, 12);
  for (const char* bad :
       {"", "GET / HTTP/1.1", "tilewright-rendezvous 1 ", "tilewright-rendezvous 1 a b",
        "tilewright-rendezvous 0 a", "tilewright-rendezvous -1 a", "tilewright-rendezvous a",
        "tilewright-rendezvous 1", "tilewright-rendezvous 1000000 a"})
    EXPECT_FALSE(decode_hello(bad).ok()) << bad;
  EXPECT_FALSE(is_job_uid(std::string(254, 'a')));
}

TEST(Messages, CorruptMessagesNeverCrashTheDecoder) {
  std::mt19937_64 random(17);
  const std::string originals[] = {
      encode(ClientMessage(Join{{{1, 2}, 3}, "a:1", {"amx"}, 4, 0, some_assignment()})),
      encode(ClientMessage(Heartbeat{{}, 3, {1, 2, 3, 4, 5, 6, 7, 8, "x", {{"f1", 1}}}})),
      encode(ServerMessage(some_assignment()))};
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = originals[random() % 3];
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
      if (text.empty()) text.push_back('{');
    }
    if (!decode_client_message(text).ok()) ++refused;
    if (!decode_server_message(text).ok()) ++refused;
  }
  EXPECT_GT(refused, 6000);
  EXPECT_FALSE(decode_client_message(std::string(1 << 20, '[')).ok());
}

}  // namespace
}  // namespace tilewright::rendezvous
