#include <algorithm>
#include <set>

#include "common/base/check.h"
#include "common/rendezvous/membership.h"
#include "common/rendezvous/messages.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/support/full_assignment.h"

namespace tilewright::fuzz {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Decodes events from numbers and checks the invariants of membership.h after each. Messages of
// members pass through the protocol, so that the state machine sees what a peer can send.
class History {
 public:
  explicit History(Numbers& numbers) : numbers_(numbers) {
    Settings settings;
    settings.min_world = 1 + numbers_.below(3);
    settings.max_world = settings.min_world + numbers_.below(4);
    settings.expected =
        settings.min_world + numbers_.below(settings.max_world - settings.min_world + 1);
    const int choices = numbers_.byte();
    settings.exact = (choices & 1) != 0;
    if ((choices & 4) != 0) settings.reconnect_timeout = {};
    const Stored stored{static_cast<Epoch>(numbers_.below(4)), -1,
                        (choices & 8) != 0 ? "avx2" : ""};
    state_ = make_state(settings, stored, now_);
  }

  void run() {
    // The bound keeps one input short.
    for (int i = 0; i < 150 && !numbers_.empty(); ++i) one_event();
  }

 private:
  MemberId member() {
    const int byte = numbers_.byte();
    return {{byte & 3, (byte >> 2) & 1}, 1 + static_cast<std::uint64_t>((byte >> 3) & 3)};
  }
  // Mostly near the current epoch.
  Epoch epoch() {
    const int byte = numbers_.byte();
    if (byte == 255) return std::min<Epoch>(numbers_.integer(7), kMaxEpoch);
    const auto back = static_cast<Epoch>(byte & 3);
    return state_.latest_epoch + 1 - std::min(state_.latest_epoch + 1, back);
  }
  std::vector<std::string> isas() {
    switch (numbers_.below(4)) {
      case 0:
        return {"avx2"};
      case 1:
        return {"amx"};
      default:
        return {"avx2", "amx"};
    }
  }

  // The current assignment of a member, or an arbitrary one.
  Assignment assignment(const MemberId& who) {
    Assignment held;
    const int choice = numbers_.byte();
    if (state_.current() && (choice & 1) == 0) {
      const auto found = std::ranges::find_if(
          state_.epoch_members, [&](const EpochMember& p) { return p.peer.who == who; });
      const auto rank =
          found == state_.epoch_members.end() ? 0 : found - state_.epoch_members.begin();
      held = testing::full_assignment(state_, static_cast<int>(rank));
    } else {
      held.epoch = std::max<Epoch>(epoch(), 1);
      held.world = 1 + numbers_.below(4);
      held.isa = numbers_.one_in(2) ? "avx2" : "amx";
      for (int i = 0; i < held.world; ++i) held.peers.push_back({member(), "10.0.0.1:1"});
      if (numbers_.one_in(2)) held.peers[static_cast<std::size_t>(held.world) - 1].who = who;
      if (!numbers_.one_in(4)) std::ranges::sort(held.peers, {}, &Peer::who);
      held.rank = numbers_.below(held.world);
      held.local_world = held.world;
      held.local_rank = numbers_.below(held.world);
    }
    if ((choice & 6) == 6) held.rank = numbers_.below(held.world);
    return held;
  }

  void one_event() {
    const int kind = numbers_.below(16);
    now_ += kind % 2 == 0 ? milliseconds(numbers_.below(50)) : milliseconds(100 * numbers_.byte());
    const MemberId who = member();
    switch (kind) {
      case 0:
      case 1:
      case 2: {
        Join join{who, "10.0.0.1:1", isas(), -1, kind == 0 ? 0 : epoch(), {}};
        if (numbers_.one_in(4)) join.last_checkpoint_step = numbers_.byte();
        return receive(std::move(join));
      }
      case 3:
      case 4: {
        Join join{who, "10.0.0.1:1", isas(), -1, 0, {}};
        join.held_assignment = assignment(who);
        return receive(std::move(join));
      }
      case 5: {
        Heartbeat beat{who, epoch(), {}};
        beat.progress.step = numbers_.byte();
        beat.progress.last_checkpoint_step = numbers_.byte();
        return receive(std::move(beat));
      }
      case 6:
        return receive(Finished{who, epoch()});
      case 7:
        epoch();  // read, so that the inputs of the corpus keep their meaning
        return receive(Leave{who, "left"});
      case 8:
        return send(ConnectionClosed{who, "closed"});
      case 9: {
        WorkerExited exited{numbers_.below(4), {}};
        if (numbers_.one_in(2)) exited.local_rank = numbers_.below(2);
        return send(exited);
      }
      case 10: {
        const int low = numbers_.below(6) - 1;
        return send(Expect{low, low + numbers_.below(6) - 1, numbers_.below(8),
                           seconds(numbers_.below(40))});
      }
      case 11: {
        const Duration gap = seconds(numbers_.below(100));
        now_ += gap;
        return send(Stalled{gap});
      }
      case 12:  // all members send a heartbeat
        for (const auto& [process, one] : std::map(state_.members)) {
          receive(
              Heartbeat{one.who, one.state == MemberState::kInEpoch ? state_.latest_epoch : 0, {}});
        }
        return;
      default:
        return send(Tick{});
    }
  }

  // As the server receives it: a message that does not decode never reaches the state machine. Only
  // a join contains the sender.
  void receive(ClientMessage message) {
    const MemberId sender = std::visit(
        [](const auto& one) {
          if constexpr (requires { one.who; }) return one.who;
          return MemberId{};
        },
        message);
    Result<ClientMessage> decoded = decode_client_message(encode(message));
    if (!decoded.ok()) return;
    std::visit(
        [&](auto& one) {
          // The server answers a request for an index itself.
          if constexpr (requires { one.who; }) {
            one.who = sender;
            send(one);
          }
        },
        *decoded);
  }

  void send(const Event& event) {
    const State before = state_;
    const Actions actions = step(state_, event, now_);
    check_actions(before, actions);
    check_state(before);
  }

  void check_actions(const State& before, const Actions& actions) {
    std::vector<const Assign*> assigns;
    for (const Action& action : actions) {
      if (const auto* assign = std::get_if<Assign>(&action)) assigns.push_back(assign);
      if (const auto* refuse = std::get_if<Refuse>(&action)) check_message(refuse->message);
      if (const auto* lost = std::get_if<MemberLost>(&action)) check_message(lost->reason);
      if (const auto* end = std::get_if<EndEpoch>(&action)) check_message(end->reason);
      // Every action can be sent.
      if (const auto* assign = std::get_if<Assign>(&action)) {
        const EncodedAssignment parts = encode_without_peers(assign->assignment);
        const auto sent =
            decode_server_message(parts.before + encode_peers(*assign->peers) + parts.after);
        TW_CHECK(sent.ok(), "an assignment does not decode: {}", sent.error().message);
      }
    }
    const bool formed = state_.current() && state_.latest_epoch > before.latest_epoch &&
                        state_.phase == Phase::kRunning && !assigns.empty();
    if (!formed) return;
    TW_CHECK(assigns.size() == state_.epoch_members.size(), "not every member has an assignment");
    const int world = assigns.front()->assignment.world;
    TW_CHECK(world >= state_.settings.min_world && world <= state_.settings.max_world,
             "an epoch of {} processes, expected {} to {}", world, state_.settings.min_world,
             state_.settings.max_world);
    for (int rank = 0; rank < world; ++rank) {
      const Assign& one = *assigns[static_cast<std::size_t>(rank)];
      TW_CHECK(one.assignment.rank == rank && one.assignment.epoch == state_.latest_epoch,
               "rank {} has the assignment of rank {}", rank, one.assignment.rank);
    }
  }

  void check_state(const State& before) const {
    TW_CHECK(state_.latest_epoch >= before.latest_epoch, "an epoch number falls");
    TW_CHECK(state_.last_ended_epoch >= before.last_ended_epoch, "an ended epoch number falls");
    TW_CHECK(state_.latest_epoch <= kMaxEpoch, "epoch {}", state_.latest_epoch);
    TW_CHECK(!state_.settings.exact || before.isa.empty() || state_.isa == before.isa,
             "an exact job changes its instruction set from {} to {}", before.isa, state_.isa);
    const bool in_epoch = state_.phase == Phase::kRunning || state_.phase == Phase::kRebuilding ||
                          state_.phase == Phase::kDraining || state_.phase == Phase::kClosing;
    TW_CHECK(state_.current() == in_epoch, "phase {}", to_string(state_.phase));
    TW_CHECK(!state_.current() || state_.last_ended_epoch == state_.latest_epoch - 1,
             "the current epoch has ended");
    TW_CHECK(state_.members.size() <= kMaxWorld, "{} members", state_.members.size());
    for (std::size_t rank = 1; rank < state_.epoch_members.size(); ++rank) {
      TW_CHECK(state_.epoch_members[rank - 1].peer.who.process <
                   state_.epoch_members[rank].peer.who.process,
               "ranks do not follow worker index and local rank");
    }
    for (const auto& entry : state_.members) {
      const WorkerProcess& process = entry.first;
      const Member& member = entry.second;
      TW_CHECK(process == member.who.process, "a member under another process");
      TW_CHECK(!member.disconnected || member.state == MemberState::kInEpoch,
               "a member outside of an epoch is disconnected");
      if (member.state != MemberState::kInEpoch) continue;
      const auto found = std::ranges::find_if(
          state_.epoch_members, [&](const EpochMember& p) { return p.peer.who == member.who; });
      TW_CHECK(found != state_.epoch_members.end() && found->present && !found->rejoined,
               "a member is in an epoch that does not have it");
      TW_CHECK(std::ranges::find(member.isas, state_.isa) != member.isas.end(),
               "a member lacks the instruction set of its epoch");
    }
    // A timer that is due makes progress, so that the server's loop does not spin.
    if (const auto due = next_deadline(state_); due && *due <= now_) {
      State later = state_;
      step(later, Tick{}, now_);
      TW_CHECK(later != state_, "a tick has no effect on a due deadline: {}",
               to_string(state_.phase));
    }
  }

  Numbers& numbers_;
  MonotonicTime now_{seconds(1000)};
  State state_;
};

}  // namespace

int fuzz_membership(const std::uint8_t* data, std::size_t size) {
  Numbers numbers(data, size);
  History(numbers).run();
  return 0;
}

}  // namespace tilewright::fuzz
