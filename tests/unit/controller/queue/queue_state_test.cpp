// The rules of the work queue on plain values, then under random moves.
#include "controller/queue/queue_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

namespace tilewright::queue {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class QueueStateTest : public ::testing::Test {
 protected:
  std::string take() {
    const auto taken = state.take(now);
    state.check_invariants();
    return taken ? taken->key : "";
  }
  void done(const std::string& key) {
    state.done(key, now);
    state.check_invariants();
  }
  QueueState state;
  MonotonicTime now = MonotonicTime() + seconds(1000);
};

TEST_F(QueueStateTest, HandsKeysOutInTheOrderTheyCame) {
  for (const char* key : {"b", "a", "c"}) state.add(key, now);
  EXPECT_EQ(take(), "b");
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "c");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, HoldsAKeyOnceHoweverOftenItIsAdded) {
  for (int i = 0; i < 3; ++i) state.add("a", now);
  EXPECT_EQ(state.depth(), 1U);
  EXPECT_EQ(state.adds(), 1U);
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, HandsUrgentKeysOutFirst) {
  for (const char* key : {"a", "b"}) state.add(key, now);
  for (const char* key : {"x", "y"}) state.add(key, now, Urgency::kUrgent);
  for (const char* key : {"x", "y", "a", "b", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, LetsAnOrdinaryKeyPassAfterThreeUrgentOnes) {
  for (const char* key : {"a", "b"}) state.add(key, now);
  for (const char* key : {"1", "2", "3", "4", "5", "6", "7"}) state.add(key, now, Urgency::kUrgent);
  for (const char* key : {"1", "2", "3", "a", "4", "5", "6", "b", "7", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, MovesAKeyForwardThatBecomesUrgent) {
  for (const char* key : {"a", "b", "c"}) state.add(key, now);
  state.add("b", now, Urgency::kUrgent);
  state.check_invariants();
  state.add("b", now);  // and never back
  EXPECT_EQ(state.depth(), 3U);
  EXPECT_EQ(state.adds(), 3U);
  for (const char* key : {"b", "a", "c", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, KeepsTheUrgencyOfAKeyThatIsWorkedOnOrDelayed) {
  state.add("a", now);
  state.add("b", now);
  EXPECT_EQ(take(), "a");
  state.add("a", now);
  state.add("a", now, Urgency::kUrgent);
  done("a");
  EXPECT_EQ(take(), "a") << "before b, which came earlier";
  state.add_at("c", now + seconds(1), now, Urgency::kUrgent);
  state.add_at("c", now + seconds(2), now);
  state.advance(now + seconds(1));
  EXPECT_EQ(take(), "c");
}

TEST_F(QueueStateTest, GivesAKeyToOneWorkerAtATime) {
  state.add("a", now);
  EXPECT_EQ(take(), "a");
  state.add("a", now);
  state.add("a", now);
  EXPECT_EQ(take(), "") << "a is still in the first worker's hands";
  done("a");
  EXPECT_EQ(take(), "a") << "it was added while it was worked on";
  done("a");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, DelaysAKeyUntilItIsDue) {
  state.add_at("a", now + milliseconds(10), now);
  EXPECT_EQ(state.next_due(), now + milliseconds(10));
  state.advance(now + milliseconds(9));
  EXPECT_EQ(take(), "");
  state.advance(now + milliseconds(10));
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(state.next_due(), std::nullopt);
}

TEST_F(QueueStateTest, KeepsTheEarliestOfSeveralDues) {
  state.add_at("a", now + seconds(10), now);
  state.add_at("a", now + seconds(2), now);
  state.add_at("a", now + seconds(5), now);
  state.check_invariants();
  EXPECT_EQ(state.next_due(), now + seconds(2));
  EXPECT_EQ(state.delayed(), 1U);
}

TEST_F(QueueStateTest, AddsAtOnceWhatIsAlreadyDue) {
  state.add_at("a", now, now);
  state.add_at("b", now - seconds(1), now);
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "b");
}

TEST_F(QueueStateTest, KeepsTheDelayOfAKeyThatIsAlsoAdded) {
  state.add_at("a", now + seconds(1), now);
  state.add("a", now);
  EXPECT_EQ(take(), "a");
  done("a");
  state.advance(now + seconds(1));
  EXPECT_EQ(take(), "a") << "a deadline that was asked for comes";
}

TEST_F(QueueStateTest, HandsOutWhatIsQueuedAfterClosingAndTakesNothingMore) {
  state.add("a", now);
  state.add_at("b", now + seconds(1), now);
  state.close();
  state.add("c", now);
  state.add_at("d", now + seconds(1), now);
  state.check_invariants();
  EXPECT_EQ(state.next_due(), std::nullopt);
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, TellsHowLongKeysWaitAndAreWorkedOn) {
  state.add("a", now);
  now += seconds(2);
  state.add("b", now);
  now += seconds(1);
  EXPECT_EQ(state.oldest_queued(now), seconds(3));
  EXPECT_EQ(state.take(now)->waited, seconds(3));
  now += seconds(4);
  EXPECT_EQ(state.longest_working(now), seconds(4));
  EXPECT_EQ(state.done("a", now), seconds(4));
  EXPECT_EQ(state.longest_working(now), Duration::zero());
}

// Held against a model that knows no order: the keys that need work, and when delayed ones are due.
TEST_F(QueueStateTest, LosesAndInventsNothingUnderRandomMoves) {
  std::mt19937 random(7);  // NOLINT: the same moves in each run
  std::set<std::string> dirty, working;
  std::map<std::string, MonotonicTime> dues;
  const auto pass_dues = [&] {
    for (auto at = dues.begin(); at != dues.end();) {
      if (at->second > now) {
        ++at;
        continue;
      }
      dirty.insert(at->first);
      at = dues.erase(at);
    }
  };
  const auto take_one = [&] {
    state.advance(now);
    pass_dues();
    const auto taken = state.take(now);
    if (!taken) {
      for (const std::string& key : dirty) EXPECT_TRUE(working.contains(key)) << key << " is lost";
      return false;
    }
    EXPECT_EQ(dirty.erase(taken->key), 1U) << taken->key << " was not asked for";
    EXPECT_TRUE(working.insert(taken->key).second) << taken->key << " is in two hands";
    return true;
  };
  for (int i = 0; i < 20000; ++i) {
    now += milliseconds(random() % 3);
    const std::string key(1, static_cast<char>('a' + random() % 6));
    const Urgency urgency = random() % 2 == 0 ? Urgency::kUrgent : Urgency::kOrdinary;
    switch (random() % 4) {
      case 0:
        state.add(key, now, urgency);
        dirty.insert(key);
        break;
      case 1: {
        const MonotonicTime due = now + milliseconds(1 + random() % 20);
        state.add_at(key, due, now, urgency);
        const auto [at, added] = dues.emplace(key, due);
        if (!added) at->second = std::min(at->second, due);
        break;
      }
      case 2:
        take_one();
        break;
      default:
        if (working.erase(key) == 1) state.done(key, now);
    }
    state.check_invariants();
    if (HasFailure()) return;
  }
  for (const std::string& held : working) state.done(held, now);
  working.clear();
  now += seconds(1);
  while (take_one()) {
  }
  EXPECT_TRUE(dirty.empty());
  EXPECT_EQ(state.delayed(), 0U);
}

}  // namespace
}  // namespace tilewright::queue
