#include "common/rendezvous/messages.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "common/base/check.h"
#include "common/contract/training_report.h"
#include "common/rendezvous/fields.h"

namespace tilewright::rendezvous {
namespace {

using nlohmann::json;

constexpr std::string_view kHello = "tilewright-rendezvous ";
constexpr int kMaxVersion = 999'999;
constexpr std::size_t kMaxAddress = 300;
constexpr std::size_t kMaxIsa = 32;
constexpr std::size_t kMaxName = 192;
constexpr std::size_t kMaxReasonBytes = 2048;
constexpr std::int64_t kMaxShards = 1 << 16;
constexpr auto kMaxStep = std::int64_t{1} << 48;
constexpr const char* kHeartbeatTimeout = "heartbeat_timeout_ms";

// Replaces bytes that are not UTF-8, so that a message is always valid JSON.
std::string dump(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

// dump() replaces a byte that is not UTF-8 with three bytes, so a third of the bound is safe.
std::string cut(const std::string& text, std::size_t max_bytes) {
  return text.substr(0, max_bytes / 3);
}

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json to_json(const MemberId& who) {
  return {{"index", who.process.worker_index},
          {"slot", who.process.local_rank},
          {"incarnation", who.instance_id}};
}

MemberId member_id(Fields& fields) {
  MemberId who;
  who.process.worker_index = static_cast<int>(fields.integer("index", 0, kMaxWorkerIndex));
  who.process.local_rank = static_cast<int>(fields.integer("slot", 0, kMaxLocalRank));
  who.instance_id = fields.unsigned64("incarnation");
  return who;
}

Epoch epoch(Fields& fields, const char* name, Epoch minimum) {
  return static_cast<Epoch>(fields.integer(name, static_cast<std::int64_t>(minimum),
                                           static_cast<std::int64_t>(kMaxEpoch)));
}

json to_json(const std::vector<Peer>& peers) {
  json list = json::array();
  for (const Peer& peer : peers) {
    json one = to_json(peer.who);
    one["address"] = peer.address;
    list.push_back(std::move(one));
  }
  return list;
}

json to_json(const Assignment& assignment) {
  return {{"epoch", assignment.epoch},
          {"rank", assignment.rank},
          {"world", assignment.world},
          {"local_rank", assignment.local_rank},
          {"local_world", assignment.local_world},
          {"resume_step", assignment.resume_step},
          {"isa", assignment.isa},
          {"peers", to_json(assignment.peers)}};
}

// Ranks follow worker index and local rank, one per process. The members of an epoch compute their
// peers and shards from them.
void check_ranks(const Assignment& assignment, Fields& fields) {
  const std::vector<Peer>& peers = assignment.peers;
  for (std::size_t rank = 1; rank < peers.size(); ++rank) {
    if (peers[rank - 1].who.process < peers[rank].who.process) continue;
    return fields.fail(
        "peers",
        fmt::format("has {} before {}, expected each process once, by index",
                    to_string(peers[rank - 1].who.process), to_string(peers[rank].who.process)));
  }
  const auto rank = static_cast<std::size_t>(assignment.rank);
  const auto is_local = [&](const Peer& peer) {
    return peer.who.process.worker_index == peers[rank].who.process.worker_index;
  };
  const auto before = std::ranges::count_if(std::span(peers).first(rank), is_local);
  const auto all = std::ranges::count_if(peers, is_local);
  if (assignment.local_rank == before && assignment.local_world == all) return;
  fields.fail("local_rank",
              fmt::format("is {} of {}, expected {} of {} as in peers", assignment.local_rank,
                          assignment.local_world, before, all));
}

Assignment assignment(Fields& fields) {
  Assignment result;
  result.epoch = epoch(fields, "epoch", 1);
  result.world = static_cast<int>(fields.integer("world", 1, kMaxWorld));
  result.rank = static_cast<int>(fields.integer("rank", 0, result.world - 1));
  result.local_world = static_cast<int>(fields.integer("local_world", 1, result.world));
  result.local_rank = static_cast<int>(fields.integer("local_rank", 0, result.local_world - 1));
  result.resume_step = fields.integer("resume_step", -1, kMaxStep);
  result.isa = fields.string("isa", kMaxIsa);
  const json& peers = fields.array("peers", kMaxWorld);
  if (static_cast<int>(peers.size()) != result.world)
    fields.fail("peers", fmt::format("has {} entries, expected {}", peers.size(), result.world));
  for (const json& one : peers) {
    Fields peer(one, "peer");
    result.peers.push_back({member_id(peer), peer.string("address", kMaxAddress)});
    fields.take_error(peer);
  }
  if (fields.ok()) check_ranks(result, fields);
  return result;
}

json to_json(const Progress& progress) {
  json metrics = json::object();
  for (const auto& [name, value] : progress.metrics) {
    if (metrics.size() == kMaxMetrics) break;
    metrics[cut(name, kMaxName)] = number(value);
  }
  json slow_workers = json::array();
  for (const SlowWorker& slow : progress.slow_workers) {
    if (slow_workers.size() == training_report::kMaxSlowWorkers) break;
    slow_workers.push_back({{"index", slow.process.worker_index},
                            {"slot", slow.process.local_rank},
                            {"slowdown", number(slow.slowdown)},
                            {"shards", slow.shards}});
  }
  return {{"step", progress.step},
          {"total_steps", progress.total_steps},
          {"epoch_of_data", number(progress.epoch_of_data)},
          {"loss", number(progress.loss)},
          {"learning_rate", number(progress.learning_rate)},
          {"examples_per_second", number(progress.examples_per_second)},
          {"tokens_per_second", number(progress.tokens_per_second)},
          {"last_checkpoint_step", progress.last_checkpoint_step},
          {"phase", cut(progress.phase, kMaxName)},
          {"metrics", std::move(metrics)},
          {"slow_workers", std::move(slow_workers)}};
}

Progress progress(Fields& fields) {
  Progress result;
  result.step = fields.integer("step", 0, kMaxStep);
  result.total_steps = fields.integer("total_steps", 0, kMaxStep);
  result.epoch_of_data = fields.number("epoch_of_data");
  result.loss = fields.number("loss");
  result.learning_rate = fields.number("learning_rate");
  result.examples_per_second = fields.number("examples_per_second");
  result.tokens_per_second = fields.number("tokens_per_second");
  result.last_checkpoint_step = fields.integer("last_checkpoint_step", -1, kMaxStep);
  result.phase = fields.string("phase", kMaxName);
  const json& metrics = fields.object("metrics", kMaxMetrics);
  Fields values(metrics, "metrics");
  for (const auto& [name, value] : metrics.items()) {
    if (name.size() > kMaxName)
      values.fail("a name", fmt::format("is longer than {} bytes", kMaxName));
    result.metrics[name] = values.number(name.c_str());
  }
  fields.take_error(values);
  if (!fields.has("slow_workers")) return result;  // workers of earlier versions do not report them
  for (const json& one : fields.array("slow_workers", training_report::kMaxSlowWorkers)) {
    Fields slow(one, "slow worker");
    result.slow_workers.push_back({{static_cast<int>(slow.integer("index", 0, kMaxWorkerIndex)),
                                    static_cast<int>(slow.integer("slot", 0, kMaxLocalRank))},
                                   slow.number("slowdown"),
                                   static_cast<int>(slow.integer("shards", 0, kMaxShards))});
    fields.take_error(slow);
  }
  return result;
}

json body(const Join& join) {
  json message = to_json(join.who);
  message["type"] = "join";
  message["address"] = join.address;
  message["isas"] = join.isas;
  message["last_checkpoint_step"] = join.last_checkpoint_step;
  if (join.held_assignment) {
    message["holding"] = to_json(*join.held_assignment);
  } else {
    message["after_epoch"] = join.after_epoch;
  }
  return message;
}
json body(const Heartbeat& beat) {
  return {{"type", "heartbeat"}, {"epoch", beat.epoch}, {"progress", to_json(beat.progress)}};
}
json body(const Finished& finished) { return {{"type", "finished"}, {"epoch", finished.epoch}}; }
json body(const Leave& leave) {
  // Coordinators of earlier versions expect an epoch.
  return {{"type", "leave"}, {"epoch", 0}, {"reason", cut(leave.reason, kMaxReasonBytes)}};
}
json body(const IndexRequest& request) {
  return {{"type", "index_request"}, {"agent", request.agent_id}};
}
json body(const AgentFailed& failed) {
  json message = {{"type", "agent_failed"}, {"reason", cut(failed.reason, kMaxReasonBytes)}};
  if (failed.worker_index) message["index"] = *failed.worker_index;
  return message;
}
json body(const WorkerIndex& answer) { return {{"type", "index"}, {"index", answer.index}}; }
json body(const Assignment& assignment) {
  return {{"type", "assignment"}, {"assignment", to_json(assignment)}};
}
json body(const EndEpoch& end) {
  return {{"type", "epoch_ended"},
          {"epoch", end.epoch},
          {"reason", cut(end.reason, kMaxReasonBytes)},
          {"job_finished", end.job_finished}};
}
json body(const RequestReform& ask) {
  return {{"type", "reform"}, {"epoch", ask.epoch}, {"reason", cut(ask.reason, kMaxReasonBytes)}};
}
json body(const Refuse& refuse) {
  return {{"type", "refused"},
          {"sentence", cut(refuse.message, kMaxReasonBytes)},
          {"job_finished", refuse.job_finished},
          {"replaced", refuse.replaced}};
}
json body(const Unavailable& unavailable) {
  return {{"type", "unavailable"}, {"reason", cut(unavailable.reason, kMaxReasonBytes)}};
}
json body(const Acknowledge&) { return {{"type", "acknowledged"}}; }
json body(const HeartbeatReply& reply) {
  return {{"type", "pulse"},
          {"running", reply.running},
          {kHeartbeatTimeout,
           std::chrono::ceil<std::chrono::milliseconds>(reply.heartbeat_timeout).count()}};
}

Join join(Fields& fields) {
  Join result;
  result.who = member_id(fields);
  result.address = fields.string("address", kMaxAddress);
  result.isas = fields.strings("isas", kMaxIsas, kMaxIsa);
  result.last_checkpoint_step = fields.integer("last_checkpoint_step", -1, kMaxStep);
  if (fields.has("holding")) {
    Fields held(fields.object("holding", 16), "holding");
    result.held_assignment = assignment(held);
    fields.take_error(held);
  } else {
    result.after_epoch = epoch(fields, "after_epoch", 0);
  }
  return result;
}

Heartbeat heartbeat(Fields& fields) {
  Heartbeat result;
  result.epoch = epoch(fields, "epoch", 0);
  Fields part(fields.object("progress", 32), "progress");
  result.progress = progress(part);
  fields.take_error(part);
  return result;
}

template <typename Message>
Result<Message> checked(const Fields& fields, Message message) {
  if (!fields.ok()) return fields.error();
  return message;
}

// The JSON object, or an Error.
Result<json> parse(std::string_view text) {
  json message = json::parse(text, nullptr, false);
  if (message.is_discarded() || !message.is_object())
    return Error{ExitCode::kPeerLost,
                 fmt::format("a message of {} bytes is not a JSON object", text.size())};
  return message;
}

}  // namespace

bool is_job_uid(std::string_view text) {
  return !text.empty() && text.size() <= kMaxUidBytes && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

std::string encode_hello(std::string_view job_uid, int version) {
  return fmt::format("{}{} {}", kHello, version, job_uid);
}

Result<Hello> decode_hello(std::string_view text) {
  const Error not_a_hello{ExitCode::kPeerLost, "does not speak the rendezvous protocol"};
  if (!text.starts_with(kHello)) return not_a_hello;
  text.remove_prefix(kHello.size());
  Hello hello;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hello.version);
  if (error != std::errc() || hello.version < 1 || hello.version > kMaxVersion) return not_a_hello;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(' ') || !is_job_uid(text.substr(1))) return not_a_hello;
  hello.job_uid = text.substr(1);
  return hello;
}

std::string proof_context(std::string_view job_uid) {
  return fmt::format("rendezvous of job {}", job_uid);
}

std::string encode(const ClientMessage& message) {
  return dump(std::visit([](const auto& one) { return body(one); }, message));
}

std::string encode(const ServerMessage& message) {
  return dump(std::visit([](const auto& one) { return body(one); }, message));
}

EncodedAssignment encode_without_peers(const Assignment& assignment) {
  TW_CHECK(assignment.peers.empty(), "an assignment with {} peers", assignment.peers.size());
  const std::string text = encode(ServerMessage(assignment));
  // In a JSON string the quotes would be escaped.
  const std::string_view key = "\"peers\":", empty = "[]";
  const std::size_t at = text.find(key) + key.size();
  return {text.substr(0, at), text.substr(at + empty.size())};
}

std::string encode_peers(const std::vector<Peer>& peers) { return dump(to_json(peers)); }

bool is_join_with_epoch(std::string_view text) {
  const Result<json> parsed = parse(text);
  if (!parsed.ok()) return false;
  const auto type = parsed->find("type");
  return type != parsed->end() && *type == "join" && parsed->contains("holding");
}

Result<ClientMessage> decode_client_message(std::string_view text) {
  const Result<json> parsed = parse(text);
  if (!parsed.ok()) return parsed.error();
  Fields fields(*parsed, "message");
  const std::string type = fields.string("type", kMaxName);
  if (type == "join") {
    Join message = join(fields);
    return checked<ClientMessage>(fields, std::move(message));
  }
  if (type == "heartbeat") {
    Heartbeat message = heartbeat(fields);
    return checked<ClientMessage>(fields, std::move(message));
  }
  if (type == "finished") {
    const Finished message{{}, epoch(fields, "epoch", 0)};
    return checked<ClientMessage>(fields, message);
  }
  if (type == "leave") {
    Leave message{{}, fields.string("reason", kMaxReasonBytes)};
    return checked<ClientMessage>(fields, std::move(message));
  }
  if (type == "agent_failed") {
    AgentFailed message{fields.string("reason", kMaxReasonBytes)};
    if (fields.has("index")) {
      message.worker_index = static_cast<int>(fields.integer("index", 0, kMaxWorkerIndex));
    }
    return checked<ClientMessage>(fields, std::move(message));
  }
  if (type == "index_request") {
    const IndexRequest message{fields.unsigned64("agent")};
    return checked<ClientMessage>(fields, message);
  }
  fields.fail("type", fmt::format("is \"{}\", expected a type that a member sends", type));
  return fields.error();
}

Result<ServerMessage> decode_server_message(std::string_view text) {
  const Result<json> parsed = parse(text);
  if (!parsed.ok()) return parsed.error();
  Fields fields(*parsed, "message");
  const std::string type = fields.string("type", kMaxName);
  if (type == "assignment") {
    Fields part(fields.object("assignment", 16), "assignment");
    Assignment message = assignment(part);
    fields.take_error(part);
    return checked<ServerMessage>(fields, std::move(message));
  }
  if (type == "epoch_ended") {
    EndEpoch message{{},
                     epoch(fields, "epoch", 0),
                     fields.string("reason", kMaxReasonBytes),
                     fields.boolean("job_finished")};
    return checked<ServerMessage>(fields, std::move(message));
  }
  if (type == "reform") {
    RequestReform message{{}, epoch(fields, "epoch", 1), fields.string("reason", kMaxReasonBytes)};
    return checked<ServerMessage>(fields, std::move(message));
  }
  if (type == "refused") {
    // Coordinators of earlier versions do not send `replaced`.
    Refuse message{{},
                   fields.string("sentence", kMaxReasonBytes),
                   fields.boolean("job_finished"),
                   fields.has("replaced") && fields.boolean("replaced")};
    return checked<ServerMessage>(fields, std::move(message));
  }
  if (type == "unavailable") {
    Unavailable message{fields.string("reason", kMaxReasonBytes)};
    return checked<ServerMessage>(fields, std::move(message));
  }
  if (type == "index") {
    const WorkerIndex message{static_cast<int>(fields.integer("index", 0, kMaxWorkerIndex))};
    return checked<ServerMessage>(fields, message);
  }
  if (type == "acknowledged") return checked<ServerMessage>(fields, Acknowledge{});
  if (type == "pulse") {
    HeartbeatReply message{fields.has("running") && fields.boolean("running")};
    if (fields.has(kHeartbeatTimeout)) {
      using std::chrono::milliseconds;
      constexpr auto kMost = std::chrono::duration_cast<milliseconds>(kMaxSettingDuration).count();
      message.heartbeat_timeout = milliseconds(fields.integer(kHeartbeatTimeout, 0, kMost));
    }
    return checked<ServerMessage>(fields, message);
  }
  fields.fail("type", fmt::format("is \"{}\", expected a type that a coordinator sends", type));
  return fields.error();
}

}  // namespace tilewright::rendezvous
