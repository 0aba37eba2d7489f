// Tests of QueueState with single operations and with random ones.
#include "controller/workqueue/queue_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

namespace tilewright::workqueue {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class QueueStateTest : public ::testing::Test {
 protected:
  std::string take() {
    const auto taken = state.take(now);
    state.check_invariants();
    return taken.value_or("");
  }
  void done(const std::string& key) {
    state.done(key);
    state.check_invariants();
  }
  QueueState state;
  MonotonicTime now = MonotonicTime() + seconds(1000);
};

TEST_F(QueueStateTest, ReturnsKeysInOrder) {
  for (const char* key : {"b", "a", "c"}) state.add(key, now);
  EXPECT_EQ(take(), "b");
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "c");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, QueuesAKeyOnce) {
  for (int i = 0; i < 3; ++i) state.add("a", now);
  EXPECT_EQ(state.depth(), 1U);
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "");
}

TEST_F(QueueStateTest, TakesHighPriorityKeysFirst) {
  for (const char* key : {"a", "b"}) state.add(key, now);
  for (const char* key : {"x", "y"}) state.add(key, now, Priority::kHigh);
  for (const char* key : {"x", "y", "a", "b", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, TakesANormalKeyAfterThreeHighPriorityOnes) {
  for (const char* key : {"a", "b"}) state.add(key, now);
  for (const char* key : {"1", "2", "3", "4", "5", "6", "7"}) state.add(key, now, Priority::kHigh);
  for (const char* key : {"1", "2", "3", "a", "4", "5", "6", "b", "7", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, MovesAKeyForwardWhenItsPriorityRises) {
  for (const char* key : {"a", "b", "c"}) state.add(key, now);
  state.add("b", now, Priority::kHigh);
  state.check_invariants();
  state.add("b", now);  // does not lower the priority
  EXPECT_EQ(state.depth(), 3U);
  for (const char* key : {"b", "a", "c", ""}) EXPECT_EQ(take(), key);
}

TEST_F(QueueStateTest, KeepsThePriorityOfAProcessingOrDelayedKey) {
  state.add("a", now);
  state.add("b", now);
  EXPECT_EQ(take(), "a");
  state.add("a", now);
  state.add("a", now, Priority::kHigh);
  done("a");
  EXPECT_EQ(take(), "a") << "before b, which was added earlier";
  state.add_at("c", now + seconds(1), now, Priority::kHigh);
  state.add_at("c", now + seconds(2), now);
  state.advance(now + seconds(1));
  EXPECT_EQ(take(), "c");
}

TEST_F(QueueStateTest, GivesAKeyToOneWorkerAtATime) {
  state.add("a", now);
  EXPECT_EQ(take(), "a");
  state.add("a", now);
  state.add("a", now);
  EXPECT_EQ(take(), "") << "a is still being processed";
  done("a");
  EXPECT_EQ(take(), "a") << "added while it was processed";
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

TEST_F(QueueStateTest, KeepsTheEarliestOfSeveralDueTimes) {
  state.add_at("a", now + seconds(10), now);
  state.add_at("a", now + seconds(2), now);
  state.add_at("a", now + seconds(5), now);
  state.check_invariants();
  EXPECT_EQ(state.next_due(), now + seconds(2));
  state.advance(now + seconds(2));
  EXPECT_EQ(state.next_due(), std::nullopt) << "the later times are dropped";
}

TEST_F(QueueStateTest, AddsADueKeyAtOnce) {
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
  EXPECT_EQ(take(), "a") << "the delay is kept";
}

TEST_F(QueueStateTest, DrainsQueuedKeysAfterCloseAndAcceptsNoMore) {
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

TEST_F(QueueStateTest, ReportsWaitAndProcessingTimes) {
  state.add("a", now);
  now += seconds(2);
  state.add("b", now);
  now += seconds(1);
  EXPECT_EQ(state.oldest_queued(now), seconds(3));
  EXPECT_EQ(state.take(now), "a");
  now += seconds(4);
  EXPECT_EQ(state.longest_processing(now), seconds(4));
  state.done("a");
  EXPECT_EQ(state.longest_processing(now), Duration::zero());
}

// The model ignores the order: it holds the keys that need processing and the due times.
TEST_F(QueueStateTest, MatchesTheModelUnderRandomOperations) {
  std::mt19937 random(7);  // NOLINT: fixed seed for reproducible operations
  std::set<std::string> dirty, working;
  std::map<std::string, MonotonicTime> dues;
  const auto move_due_keys = [&] {
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
    move_due_keys();
    const auto taken = state.take(now);
    if (!taken) {
      for (const std::string& key : dirty) EXPECT_TRUE(working.contains(key)) << key << " is lost";
      return false;
    }
    EXPECT_EQ(dirty.erase(*taken), 1U) << *taken << " was not added";
    EXPECT_TRUE(working.insert(*taken).second) << *taken << " is processed twice";
    return true;
  };
  for (int i = 0; i < 20000; ++i) {
    now += milliseconds(random() % 3);
    const std::string key(1, static_cast<char>('a' + random() % 6));
    const Priority priority = random() % 2 == 0 ? Priority::kHigh : Priority::kNormal;
    switch (random() % 4) {
      case 0:
        state.add(key, now, priority);
        dirty.insert(key);
        break;
      case 1: {
        const MonotonicTime due = now + milliseconds(1 + random() % 20);
        state.add_at(key, due, now, priority);
        const auto [at, added] = dues.emplace(key, due);
        if (!added) at->second = std::min(at->second, due);
        break;
      }
      case 2:
        take_one();
        break;
      default:
        if (working.erase(key) == 1) state.done(key);
    }
    state.check_invariants();
    if (HasFailure()) return;
  }
  for (const std::string& held : working) state.done(held);
  working.clear();
  now += seconds(1);
  while (take_one()) {
  }
  EXPECT_TRUE(dirty.empty());
  EXPECT_EQ(state.next_due(), std::nullopt);
}

}  // namespace
}  // namespace tilewright::workqueue
