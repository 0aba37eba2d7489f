// Thousands of random event sequences, checked after each step against the invariants in
// membership.h. Half of the events are those of well-behaved members, half are arbitrary: late,
// repeated, out of order. MEMBERSHIP_SEEDS=FIRST-LAST replaces the seeds of the sequences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "common/rendezvous/membership.h"
#include "tests/support/full_assignment.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::full_assignment;

// A process as it sees itself, independent of the coordinator.
struct Process {
  bool connected = false;
  bool refused = false;
  Epoch gave_up = 0;
  std::optional<Assignment> holds;
  std::string isa;  // of its epochs; empty: it may still use any
};

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    settings_.min_world = 1 + pick(2);
    settings_.max_world = settings_.min_world + pick(4);
    settings_.expected = settings_.min_world + pick(settings_.max_world - settings_.min_world + 1);
    if (pick(4) == 0) settings_.reconnect_timeout = {};
    settings_.exact = pick(2) == 0;
    highest_ = static_cast<Epoch>(pick(3));
    state_ = make_state(settings_, {highest_}, now_);
  }

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) {
      now_ += milliseconds(pick(4) == 0 ? pick(12000) : pick(50));
      one_event();
    }
  }

  // From any state: if all connected members behave and none leaves, an epoch runs before the
  // longest timeout has passed.
  void settle_down() {
    if (state_.phase == Phase::kClosing || state_.phase == Phase::kClosed) return;
    for (const auto& [key, member] : std::map(state_.members))
      if (member.disconnected) reconnect(member);
    for (const auto& [key, member] : std::map(state_.members))
      if (member.state == MemberState::kFinished) send(ConnectionClosed{member.who, "ended"});
    int next_index = 10;
    const MonotonicTime bound = now_ + settings_.recovery_timeout + seconds(10) +
                                std::max(settings_.join_quiet_period, settings_.rejoin_timeout);
    while (now_ < bound && !settled()) {
      now_ += seconds(1);
      for (; usable_members() < settings_.min_world; ++next_index) {
        ASSERT_LT(next_index, 20) << "a member that has all instruction sets is not admitted";
        send(Join{{{next_index, 0}, 1}, "10.1.0.1:1", isas_of({next_index, 0}), -1, 0, {}});
      }
      for (const auto& [key, earlier] : std::map(state_.members))
        if (const auto now = state_.members.find(key); now != state_.members.end())
          behave(Member(now->second));
      send(Tick{});
    }
    ASSERT_TRUE(settled()) << to_string(state_.phase) << ", " << state_.members.size()
                           << " members";
  }

 private:
  int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  MemberId random_member() {
    return {{pick(4), pick(8) == 0 ? 1 : 0}, 1 + static_cast<std::uint64_t>(pick(3))};
  }
  Epoch any_epoch() {
    const int offset = pick(8);  // rarely an epoch that was never assigned
    return offset == 7 ? highest_ + 1 : highest_ - std::min<Epoch>(highest_, offset / 2);
  }
  // Most processes can use both instruction sets, one only the slower and one only the faster.
  static std::vector<std::string> isas_of(const WorkerProcess& process) {
    if (process.worker_index == 2) return {"avx2"};
    if (process.worker_index == 3) return {"amx"};
    return {"avx2", "amx"};
  }
  int usable_members() const {
    return static_cast<int>(std::ranges::count_if(
        state_.members, [&](const auto& entry) { return !lacks_isa(state_, entry.second); }));
  }
  static std::string address_of_member(const MemberId& who) {
    return fmt::format("10.0.{}.{}:{}", who.process.local_rank, who.process.worker_index,
                       who.instance_id);
  }
  // In an exact job a process joins with the instruction set of its earlier epochs.
  Join join_of(const MemberId& who) {
    const std::string& isa = processes_[who].isa;
    return {who,
            address_of_member(who),
            isa.empty() ? isas_of(who.process) : std::vector{isa},
            pick(100),
            0,
            {}};
  }

  void one_event() {
    const MemberId who = random_member();
    Process& process = processes_[who];
    if (pick(2) == 0) return well_behaved(who, process);
    switch (pick(8)) {
      case 0: {
        if (pick(8) == 0) return report_impossible_epoch(who);
        Join join = join_of(who);
        join.after_epoch = any_epoch();
        return send(join);
      }
      case 1:
        return send(reconnect_of(who));
      case 2:
        return send(Heartbeat{who, any_epoch(), {}});
      case 3:
        if (pick(20) == 0) return send(Finished{who, any_epoch()});
        return send(Tick{});
      case 4:
        return send(Leave{who, "left"});
      case 5:
        return expect();
      case 6:
        if (pick(10) == 0) return restart(pick(2) == 0 ? highest_ : 0);
        if (pick(2) == 0) return worker_exits();
        if (pick(2) == 0) return stall();
        return send(Tick{});
      default:
        return send(ConnectionClosed{who, "closed"});
    }
  }

  // The coordinator does not run for a moment, after it has handled what was due.
  void stall() {
    send(Tick{});
    const auto due = next_deadline(state_);
    const Epoch epoch = state_.epoch();
    const Duration gap = milliseconds(pick(60000));
    now_ += gap;
    send(Stalled{gap});
    ASSERT_EQ(state_.epoch(), epoch);
    if (due) {
      ASSERT_EQ(*next_deadline(state_), *due + gap);
    }
  }

  void worker_exits() {
    WorkerExited exited{pick(4), {}};
    if (pick(2) == 0) exited.local_rank = pick(2);
    send(exited);
  }

  void reconnect(const Member& member) {
    const auto epoch_member = std::ranges::find_if(
        state_.epoch_members, [&](const EpochMember& p) { return p.peer.who == member.who; });
    ASSERT_TRUE(epoch_member != state_.epoch_members.end());
    const int rank = static_cast<int>(epoch_member - state_.epoch_members.begin());
    send(Join{member.who, member.address, member.isas, -1, 0, full_assignment(state_, rank)});
  }

  // The connection of a member breaks, and the same instance reconnects in time.
  void reset(const MemberId& who) {
    const Member* member = find(who);
    if (member == nullptr || member->state != MemberState::kInEpoch ||
        state_.phase != Phase::kRunning || settings_.reconnect_timeout == Duration::zero() ||
        member->reported_exited)
      return;
    const State before = state_;
    send(ConnectionClosed{who, "reset"});
    now_ += milliseconds(pick(3000));
    reconnect(Member(*member));
    ASSERT_TRUE(find(who) != nullptr);
    State expected = before;
    expected.members[who.process].last_seen = now_;
    expected.members[who.process].disconnected.reset();
    ASSERT_TRUE(state_ == expected) << "a broken connection changed more than its member";
  }

  void report_impossible_epoch(const MemberId& who) {
    if (state_.phase == Phase::kClosing || state_.phase == Phase::kClosed) return;
    Join join = join_of(who);
    join.after_epoch = kMaxEpoch - static_cast<Epoch>(pick(2)) * (kMaxEpoch / 2);
    const State before = state_;
    const Actions actions = step(state_, join, now_);
    ASSERT_EQ(actions.size(), 1u);
    ASSERT_TRUE(std::holds_alternative<Refuse>(actions[0]));
    ASSERT_TRUE(state_ == before);
  }

  // The owner changes the expected number, and rarely the bounds.
  void expect() {
    if (pick(4) == 0) {
      settings_.min_world = 1 + pick(2);
      settings_.max_world = settings_.min_world + pick(4);
      settings_.expected = settings_.min_world;  // as after a restart
    }
    send(Expect{settings_.min_world, settings_.max_world, pick(6), seconds(pick(10))});
  }

  // The assignment of some process, or a similar one.
  Join reconnect_of(const MemberId& who) {
    Join join = join_of(who);
    for (const auto& [other, process] : processes_) {
      if (process.holds && (other == who || pick(4) == 0)) join.held_assignment = process.holds;
    }
    if (!join.held_assignment)
      join.held_assignment =
          Assignment{std::max<Epoch>(1, any_epoch()), 0, 1, 0, 1, -1, {{who, "x:1"}},
                     isas_of(who.process).front()};
    if (pick(4) == 0) join.held_assignment->rank = pick(5) - 1;
    if (pick(8) == 0) join.held_assignment->peers.push_back({who, "y:2"});
    return join;
  }

  void well_behaved(const MemberId& who, Process& process) {
    if (process.refused) return;
    if (!process.connected) {
      Join join = join_of(who);
      if (process.holds) {
        join.held_assignment = process.holds;
      } else {
        join.after_epoch = process.gave_up;
      }
      return send(join);
    }
    if (!process.holds) return send(pick(2) == 0 ? Event{Heartbeat{who, 0, {}}} : Event{Tick{}});
    switch (pick(14)) {
      case 13:
        return send(Leave{who, "stopped"});
      case 0: {
        Join join = join_of(who);
        join.after_epoch = process.gave_up = process.holds->epoch;
        process.holds.reset();
        return send(join);
      }
      case 1:
        return send(ConnectionClosed{who, "died"});
      case 2:
        if (pick(30) == 0) return send(Finished{who, process.holds->epoch});
        return send(Tick{});
      case 3:
        return reset(who);
      default:
        return send(Heartbeat{who, process.holds->epoch, {}});
    }
  }

  // An epoch runs with all members up to the maximum.
  bool settled() const {
    if (state_.phase != Phase::kRunning) return false;
    const std::size_t all = std::min<std::size_t>(usable_members(), settings_.max_world);
    // An epoch may exceed a maximum that was lowered after it formed.
    return state_.epoch_members.size() >= all ||
           std::ranges::any_of(state_.epoch_members, &EpochMember::finished);
  }

  void behave(const Member& member) {
    const bool inside = member.state == MemberState::kInEpoch;
    const Epoch left =
        state_.phase == Phase::kDraining ? state_.latest_epoch : state_.last_ended_epoch;
    if (member.state == MemberState::kNotRejoined || (inside && state_.phase == Phase::kDraining))
      return send(Join{member.who, member.address, member.isas, -1, left, {}});
    send(Heartbeat{member.who, inside ? state_.latest_epoch : 0, {}});
  }

  void restart(Epoch last_epoch) {
    state_ = make_state(settings_, {last_epoch, -1, pick(2) == 0 ? state_.isa : ""}, now_);
    highest_ = last_epoch;
    for (auto& [who, process] : processes_) process.connected = false;
  }

  void send(const Event& event) {
    if (needs_connection(event)) return;
    const State before = state_;
    const bool stale = is_stale(event);
    const auto* join = std::get_if<Join>(&event);
    if (join != nullptr) processes_[join->who].connected = true;
    if (const auto* closed = std::get_if<ConnectionClosed>(&event))
      processes_[closed->who].connected = false;
    const Actions actions = step(state_, event, now_);
    ASSERT_EQ(stale && state_ != before, false) << "a stale message changed the state";
    const bool refused = std::ranges::any_of(actions, [&](const Action& action) {
      const auto* refuse = std::get_if<Refuse>(&action);
      return refuse != nullptr && join != nullptr && refuse->to == join->who;
    });
    Epoch held = 0;
    if (join != nullptr && !refused) {
      if (join->held_assignment) held = join->held_assignment->epoch;
      highest_ = std::max({highest_, join->after_epoch, held});
      if (held != 0) processes_[join->who].holds = join->held_assignment;
    }
    if (const auto* leave = std::get_if<Leave>(&event); leave != nullptr && !stale)
      check_left(leave->who, before, actions);
    check_actions(before, actions, held);
    check_state(before);
  }

  // Whatever epoch is current, and whether or not the member has seen its assignment.
  void check_left(const MemberId& who, const State& before, const Actions& actions) {
    const Member& member = before.members.at(who.process);
    processes_[who] = {};
    ASSERT_EQ(find(who), nullptr) << "a member that has left is still a member";
    const auto epoch_member = std::ranges::find_if(
        state_.epoch_members, [&](const EpochMember& one) { return one.peer.who == who; });
    ASSERT_TRUE(epoch_member == state_.epoch_members.end() || epoch_member->finished ||
                epoch_member->rejoined)
        << "the epoch of a member that has left continues";
    const auto losses = std::ranges::count_if(actions, [&](const Action& action) {
      const auto* lost = std::get_if<MemberLost>(&action);
      return lost != nullptr && lost->who == who && lost->kind == LossKind::kLeft;
    });
    ASSERT_EQ(losses, member.state == MemberState::kFinished ? 0 : 1);
  }

  const Member* find(const MemberId& who) const {
    const auto found = state_.members.find(who.process);
    return found != state_.members.end() && found->second.who == who ? &found->second : nullptr;
  }

  // Only a join arrives on a new connection.
  bool needs_connection(const Event& event) const {
    const auto is_disconnected = [&](const MemberId& who) {
      const Member* member = find(who);
      return member != nullptr && member->disconnected.has_value();
    };
    if (const auto* e = std::get_if<Heartbeat>(&event)) return is_disconnected(e->who);
    if (const auto* e = std::get_if<Finished>(&event)) return is_disconnected(e->who);
    return false;
  }

  // An independent implementation of the rules: the message's epoch is not the member's; a Leave is
  // not from the connection of a member.
  bool is_stale(const Event& event) const {
    const auto differs = [&](const MemberId& who, Epoch epoch) {
      Epoch own = 0;
      for (const EpochMember& epoch_member : state_.epoch_members)
        if (epoch_member.peer.who == who && epoch_member.present && !epoch_member.rejoined)
          own = state_.latest_epoch;
      return epoch != own;
    };
    if (const auto* e = std::get_if<Heartbeat>(&event)) return differs(e->who, e->epoch);
    if (const auto* e = std::get_if<Finished>(&event)) return differs(e->who, e->epoch);
    if (const auto* e = std::get_if<Leave>(&event)) {
      const Member* member = find(e->who);
      return member == nullptr || member->disconnected;
    }
    if (const auto* e = std::get_if<Join>(&event)) {
      const Member* member = find(e->who);
      return !e->held_assignment && member != nullptr && !member->disconnected &&
             member->state == MemberState::kInEpoch && e->after_epoch < state_.latest_epoch &&
             state_.phase != Phase::kClosing;
    }
    return false;
  }

  // `held`: the epoch of the assignment that the sender of a join holds; 0: none.
  void check_actions(const State& before, const Actions& actions, Epoch held) {
    std::vector<Assign> assigns;
    for (const Action& action : actions) {
      if (const auto* end = std::get_if<EndEpoch>(&action)) {
        Process& process = processes_[end->to];
        if (process.holds && process.holds->epoch == end->epoch) {
          process.gave_up = end->epoch;
          process.holds.reset();
        }
        const bool inside =
            std::ranges::any_of(state_.epoch_members, [&](const EpochMember& epoch_member) {
              return epoch_member.peer.who == end->to && epoch_member.present &&
                     !epoch_member.rejoined;
            });
        ASSERT_FALSE(inside && end->epoch == state_.epoch())
            << "epoch " << end->epoch << " ended for a member but continues";
      } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
        processes_[refuse->to].refused = true;
        ASSERT_FALSE(refuse->message.empty());
      } else if (const auto* assign = std::get_if<Assign>(&action)) {
        assigns.push_back(*assign);
        Process& process = processes_[assign->to];
        process.holds = full_assignment(*assign);
        if (settings_.exact) {
          ASSERT_TRUE(process.isa.empty() || process.isa == assign->assignment.isa)
              << "a state of " << process.isa << " continues with " << assign->assignment.isa;
          process.isa = assign->assignment.isa;
        }
      } else if (const auto* drop = std::get_if<CloseConnection>(&action)) {
        processes_[drop->to].connected = false;
      } else if (const auto* lost = std::get_if<MemberLost>(&action)) {
        check_replacement(*lost);
      }
    }
    // A late join may get its assignment and, because a deadline is due, its end in one step.
    for (const Assign& assign : assigns) {
      const auto& holds = processes_[assign.to].holds;
      ASSERT_TRUE(!holds || holds->epoch == state_.epoch())
          << "epoch " << holds->epoch << " is assigned, " << state_.epoch() << " is current";
    }
    std::erase_if(assigns,
                  [&](const Assign& assign) { return assign.assignment.epoch != state_.epoch(); });
    // An epoch that a member holds is adopted: its other members may receive their assignments.
    const bool formed = state_.current() && state_.latest_epoch != held &&
                        (!before.current() || state_.latest_epoch != before.latest_epoch) &&
                        state_.phase != Phase::kRebuilding && !assigns.empty();
    if (formed) check_formed(assigns);
  }

  // A process that has been in an epoch is older than one of a later epoch.
  void check_replacement(const MemberLost& lost) const {
    if (lost.kind != LossKind::kReplaced) return;
    const auto found = state_.members.find(lost.who.process);
    if (found == state_.members.end()) return;
    const Member& newer = found->second;
    ASSERT_TRUE(newer.latest_epoch == 0 || newer.latest_epoch >= lost.epoch)
        << "a process of epoch " << newer.latest_epoch << " replaces one of epoch " << lost.epoch;
  }

  void check_formed(const std::vector<Assign>& assigns) {
    const Assignment& first = assigns.front().assignment;
    const std::vector<Peer>& peers = *assigns.front().peers;
    ASSERT_GT(first.epoch, highest_) << "epoch numbers must increase";
    highest_ = first.epoch;
    ASSERT_EQ(static_cast<int>(assigns.size()), first.world);
    ASSERT_GE(first.world, settings_.min_world);
    ASSERT_LE(first.world, settings_.max_world);
    std::vector<std::pair<WorkerProcess, int>> ranks;
    for (const Assign& assign : assigns) {
      ASSERT_EQ(assign.peers.get(), &peers);
      ASSERT_EQ(assign.assignment.resume_step, first.resume_step);
      const auto rank = static_cast<std::size_t>(assign.assignment.rank);
      ASSERT_LT(rank, peers.size());
      ASSERT_EQ(peers[rank].who, assign.to);
      ranks.emplace_back(assign.to.process, assign.assignment.rank);
    }
    std::ranges::sort(ranks);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      ASSERT_EQ(ranks[i].second, static_cast<int>(i))
          << "ranks do not follow worker index and local rank";
    for (std::size_t i = 1; i < ranks.size(); ++i)
      ASSERT_NE(ranks[i - 1].first, ranks[i].first) << "a process is in the epoch twice";
  }

  void check_state(const State& before) {
    if (settings_.exact && !before.isa.empty()) {
      ASSERT_EQ(state_.isa, before.isa);
    }
    ASSERT_GE(state_.latest_epoch, before.latest_epoch);
    ASSERT_GE(state_.last_ended_epoch, before.last_ended_epoch);
    ASSERT_EQ(state_.current(),
              state_.phase == Phase::kRunning || state_.phase == Phase::kRebuilding ||
                  state_.phase == Phase::kDraining || state_.phase == Phase::kClosing);
    if (state_.current()) {
      ASSERT_EQ(state_.last_ended_epoch, state_.latest_epoch - 1);
    }
    for (const auto& [key, member] : state_.members) {
      ASSERT_EQ(key, member.who.process);
      const auto epoch_member = std::ranges::find(
          state_.epoch_members, member.who, [](const EpochMember& one) { return one.peer.who; });
      if (member.disconnected) {
        ASSERT_EQ(member.state, MemberState::kInEpoch);
      }
      if (member.state == MemberState::kInEpoch) {
        ASSERT_TRUE(epoch_member != state_.epoch_members.end() && epoch_member->present &&
                    !epoch_member->rejoined);
        ASSERT_TRUE(std::ranges::find(member.isas, state_.isa) != member.isas.end());
      }
      // No process is in two epochs: a connected, admitted one holds the current epoch or none.
      const Process& process = processes_[member.who];
      if (process.holds && process.connected && member.state == MemberState::kInEpoch) {
        ASSERT_EQ(process.holds->epoch, state_.latest_epoch);
      }
    }
    // A tick at a due deadline has an effect.
    if (const auto due = next_deadline(state_); due && *due <= now_) {
      State later = state_;
      step(later, Tick{}, now_);
      ASSERT_TRUE(later != state_)
          << "a tick has no effect on a due deadline: " << to_string(state_.phase);
    }
  }

  std::mt19937_64 random_;
  Settings settings_;
  MonotonicTime now_{seconds(1000)};
  Epoch highest_ = 0;  // assigned by or reported to this coordinator
  State state_;
  std::map<MemberId, Process> processes_;
};

TEST(MembershipProperty, RandomHistoriesKeepTheInvariants) {
  std::uint64_t first = 1, last = 2000;
  if (const char* seeds = std::getenv("MEMBERSHIP_SEEDS")) {
    const int numbers = std::sscanf(seeds, "%" SCNu64 "-%" SCNu64, &first, &last);
    ASSERT_TRUE(numbers == 2 && first <= last)
        << "MEMBERSHIP_SEEDS is " << seeds << ", expected FIRST-LAST";
  }
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    History history(seed);
    history.run(200);
    if (!HasFatalFailure()) history.settle_down();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tilewright::rendezvous
