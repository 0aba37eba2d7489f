// Thousands of random histories, each checked after every step against the promises in
// membership.h. Half of the events are what well-behaved members would send, half are anything at
// all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "common/rendezvous/membership.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A process as it sees itself.
struct Process {
  bool connected = false;
  bool refused = false;
  Epoch gave_up = 0;
  std::optional<Assignment> holds;
};

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    settings_.min_world = 1 + pick(2);
    settings_.max_world = settings_.min_world + pick(4);
    settings_.expected = settings_.min_world + pick(settings_.max_world - settings_.min_world + 1);
    settings_.growth = pick(4) == 0 ? Growth::kAtNextEpoch : Growth::kAtBoundary;
    highest_ = static_cast<Epoch>(pick(3));
    state_ = make_state(settings_, highest_, now_);
  }

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) {
      now_ += milliseconds(pick(4) == 0 ? pick(12000) : pick(50));
      one_event();
    }
  }

  // From wherever the history has led: once everybody who is connected behaves and nobody goes, an
  // epoch runs before the longest of the waits is over.
  void settle_down() {
    if (state_.phase == Phase::kClosing || state_.phase == Phase::kClosed) return;
    for (const auto& [seat, member] : std::map(state_.members))
      if (member.standing == Standing::kFinished) send(ConnectionClosed{member.who, "ended"});
    const std::string isa = state_.members.empty() ? "avx2" : state_.members.begin()->second.isa;
    for (int i = 0; static_cast<int>(state_.members.size()) < settings_.min_world; ++i)
      send(Join{{{10 + i, 0}, 1}, "10.1.0.1:1", isa, -1, 0, {}});
    const MonotonicTime bound = now_ + settings_.reunion_wait + seconds(10) +
                                std::max(settings_.last_call, settings_.rejoin_wait);
    while (now_ < bound && !settled()) {
      now_ += seconds(1);
      for (const auto& [seat, earlier] : std::map(state_.members))
        if (const auto now = state_.members.find(seat); now != state_.members.end())
          behave(Member(now->second), isa);
      send(Tick{});
    }
    ASSERT_TRUE(settled()) << to_string(state_.phase) << ", " << state_.members.size()
                           << " willing members";
  }

 private:
  int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  MemberId anybody() {
    return {{pick(4), pick(8) == 0 ? 1 : 0}, 1 + static_cast<std::uint64_t>(pick(3))};
  }
  Epoch any_epoch() {
    const int offset = pick(8);  // seldom one that nobody has handed out
    return offset == 7 ? highest_ + 1 : highest_ - std::min<Epoch>(highest_, offset / 2);
  }
  static std::string address_of_member(const MemberId& who) {
    return fmt::format("10.0.{}.{}:{}", who.seat.slot, who.seat.index, who.incarnation);
  }
  Join join_of(const MemberId& who) {
    return {who, address_of_member(who), pick(30) == 0 ? "amx" : "avx2", pick(100), 0, {}};
  }

  void one_event() {
    const MemberId who = anybody();
    Process& process = processes_[who];
    if (pick(2) == 0) return well_behaved(who, process);
    switch (pick(8)) {
      case 0: {
        Join join = join_of(who);
        join.after_epoch = any_epoch();
        return send(join);
      }
      case 1:
        return send(claim_of(who));
      case 2:
        return send(Heartbeat{who, any_epoch(), {}});
      case 3:
        if (pick(20) == 0) return send(Finished{who, any_epoch()});
        return send(Tick{});
      case 4:
        return send(Leave{who, any_epoch(), "left"});
      case 5:
        return expect();
      case 6:
        if (pick(10) == 0) return restart(pick(2) == 0 ? highest_ : 0);
        return send(Tick{});
      default:
        return send(ConnectionClosed{who, "closed"});
    }
  }

  // The owner says how many there should be, and seldom other bounds.
  void expect() {
    if (pick(4) == 0) {
      settings_.min_world = 1 + pick(2);
      settings_.max_world = settings_.min_world + pick(4);
      settings_.expected = settings_.min_world;  // of a coordinator that starts again
    }
    send(Expect{settings_.min_world, settings_.max_world, pick(6), seconds(pick(10))});
  }

  // What some process holds, or something like it.
  Join claim_of(const MemberId& who) {
    Join join = join_of(who);
    for (const auto& [other, process] : processes_) {
      if (process.holds && (other == who || pick(4) == 0)) join.holding = process.holds;
    }
    if (!join.holding)
      join.holding = Assignment{std::max<Epoch>(1, any_epoch()), 0, 1, 0, 1, -1, {{who, "x:1"}}};
    if (pick(4) == 0) join.holding->rank = pick(5) - 1;
    if (pick(8) == 0) join.holding->peers.push_back({who, "y:2"});
    return join;
  }

  void well_behaved(const MemberId& who, Process& process) {
    if (process.refused) return;
    if (!process.connected) {
      Join join = join_of(who);
      join.isa = "avx2";
      if (process.holds) {
        join.holding = process.holds;
      } else {
        join.after_epoch = process.gave_up;
      }
      return send(join);
    }
    if (!process.holds) return send(pick(2) == 0 ? Event{Heartbeat{who, 0, {}}} : Event{Tick{}});
    switch (pick(12)) {
      case 0: {
        Join join = join_of(who);
        join.isa = "avx2";
        join.after_epoch = process.gave_up = process.holds->epoch;
        process.holds.reset();
        return send(join);
      }
      case 1:
        return send(ConnectionClosed{who, "died"});
      case 2:
        if (pick(30) == 0) return send(Finished{who, process.holds->epoch});
        return send(Tick{});
      default:
        return send(Heartbeat{who, process.holds->epoch, {}});
    }
  }

  // An epoch runs, with all for whom there is room; where newcomers have to wait, with enough.
  bool settled() const {
    if (state_.phase != Phase::kRunning) return false;
    const std::size_t all = std::min(state_.members.size(), std::size_t(settings_.max_world));
    // More than the maximum are in an epoch that formed before that was lowered.
    return state_.settings.growth == Growth::kAtNextEpoch || state_.roster.size() >= all ||
           std::ranges::any_of(state_.roster, &Place::finished);
  }

  void behave(const Member& member, const std::string& isa) {
    const bool inside = member.standing == Standing::kInEpoch;
    const Epoch left = state_.phase == Phase::kDraining ? state_.latest : state_.over;
    if (member.standing == Standing::kOutstanding || (inside && state_.phase == Phase::kDraining))
      return send(Join{member.who, member.address, isa, -1, left, {}});
    send(Heartbeat{member.who, inside ? state_.latest : 0, {}});
  }

  void restart(Epoch floor) {
    state_ = make_state(settings_, floor, now_);
    highest_ = floor;
    for (auto& [who, process] : processes_) process.connected = false;
  }

  void send(const Event& event) {
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
    if (join != nullptr && !refused) {
      const Epoch held = join->holding ? join->holding->epoch : 0;
      highest_ = std::max({highest_, join->after_epoch, held});
    }
    check_actions(before, actions);
    check_state(before);
  }

  const Member* find(const MemberId& who) const {
    const auto found = state_.members.find(who.seat);
    return found != state_.members.end() && found->second.who == who ? &found->second : nullptr;
  }

  // The rule, written anew: the epoch of the message is not the one that the member is in.
  bool is_stale(const Event& event) const {
    const auto differs = [&](const MemberId& who, Epoch epoch) {
      Epoch own = 0;
      for (const Place& place : state_.roster)
        if (place.peer.who == who && place.present && !place.left) own = state_.latest;
      return epoch != own;
    };
    if (const auto* e = std::get_if<Heartbeat>(&event)) return differs(e->who, e->epoch);
    if (const auto* e = std::get_if<Finished>(&event)) return differs(e->who, e->epoch);
    if (const auto* e = std::get_if<Leave>(&event)) return differs(e->who, e->epoch);
    if (const auto* e = std::get_if<Join>(&event)) {
      const Member* member = find(e->who);
      return !e->holding && member != nullptr && member->standing == Standing::kInEpoch &&
             e->after_epoch < state_.latest && e->isa == member->isa &&
             state_.phase != Phase::kClosing;
    }
    return false;
  }

  void check_actions(const State& before, const Actions& actions) {
    std::vector<Assign> assigns;
    for (const Action& action : actions) {
      if (const auto* end = std::get_if<EndEpoch>(&action)) {
        Process& process = processes_[end->to];
        if (process.holds && process.holds->epoch == end->epoch) {
          process.gave_up = end->epoch;
          process.holds.reset();
        }
        const bool inside = std::ranges::any_of(state_.roster, [&](const Place& place) {
          return place.peer.who == end->to && place.present && !place.left;
        });
        ASSERT_FALSE(inside && end->epoch == state_.epoch())
            << "epoch " << end->epoch << " was ended for a member and goes on";
      } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
        processes_[refuse->to].refused = true;
        ASSERT_FALSE(refuse->sentence.empty());
      } else if (const auto* assign = std::get_if<Assign>(&action)) {
        assigns.push_back(*assign);
      } else if (const auto* drop = std::get_if<Drop>(&action)) {
        processes_[drop->to].connected = false;
      }
    }
    for (const Assign& assign : assigns) {
      Process& process = processes_[assign.to];
      ASSERT_EQ(assign.assignment.epoch, state_.epoch());
      process.holds = assign.assignment;
    }
    const bool formed = state_.current() && (!before.current() || state_.latest != before.latest) &&
                        state_.phase != Phase::kRebuilding && !assigns.empty();
    if (formed) check_formed(assigns);
  }

  void check_formed(const std::vector<Assign>& assigns) {
    const Assignment& first = assigns.front().assignment;
    ASSERT_GT(first.epoch, highest_) << "epochs must rise";
    highest_ = first.epoch;
    ASSERT_EQ(static_cast<int>(assigns.size()), first.world);
    ASSERT_GE(first.world, settings_.min_world);
    ASSERT_LE(first.world, settings_.max_world);
    std::vector<std::pair<Seat, int>> ranks;
    for (const Assign& assign : assigns) {
      ASSERT_EQ(assign.assignment.peers, first.peers);
      ASSERT_EQ(assign.assignment.resume_step, first.resume_step);
      const auto rank = static_cast<std::size_t>(assign.assignment.rank);
      ASSERT_LT(rank, first.peers.size());
      ASSERT_EQ(first.peers[rank].who, assign.to);
      ranks.emplace_back(assign.to.seat, assign.assignment.rank);
    }
    std::ranges::sort(ranks);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      ASSERT_EQ(ranks[i].second, static_cast<int>(i)) << "ranks do not follow the seats";
    for (std::size_t i = 1; i < ranks.size(); ++i)
      ASSERT_NE(ranks[i - 1].first, ranks[i].first) << "a seat is in the epoch twice";
  }

  void check_state(const State& before) {
    ASSERT_GE(state_.latest, before.latest);
    ASSERT_GE(state_.over, before.over);
    ASSERT_EQ(state_.current(),
              state_.phase == Phase::kRunning || state_.phase == Phase::kRebuilding ||
                  state_.phase == Phase::kDraining || state_.phase == Phase::kClosing);
    if (state_.current()) {
      ASSERT_EQ(state_.over, state_.latest - 1);
    }
    std::set<std::string> isas;
    for (const auto& [seat, member] : state_.members) {
      ASSERT_EQ(seat, member.who.seat);
      isas.insert(member.isa);
      const auto place = std::ranges::find_if(
          state_.roster, [&](const Place& p) { return p.peer.who == member.who; });
      if (member.standing == Standing::kInEpoch) {
        ASSERT_TRUE(place != state_.roster.end() && place->present && !place->left);
      }
      // Nobody is in two epochs: a connected, admitted process holds the current one or none.
      const Process& process = processes_[member.who];
      if (process.holds && process.connected && member.standing == Standing::kInEpoch) {
        ASSERT_EQ(process.holds->epoch, state_.latest);
      }
    }
    ASSERT_LE(isas.size(), 1u) << "two instruction sets";
    // Nothing that was due is left undone.
    if (const auto due = next_deadline(state_); due && *due <= now_) {
      State later = state_;
      step(later, Tick{}, now_);
      ASSERT_TRUE(later != state_)
          << "a deadline that a tick does not serve: " << to_string(state_.phase);
    }
  }

  std::mt19937_64 random_;
  Settings settings_;
  MonotonicTime now_{seconds(1000)};
  Epoch highest_ = 0;  // handed out by or told to this coordinator
  State state_;
  std::map<MemberId, Process> processes_;
};

TEST(MembershipProperty, RandomHistoriesKeepThePromises) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    History history(seed);
    history.run(200);
    if (!HasFatalFailure()) history.settle_down();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tilewright::rendezvous
