// Electors against a small store of one Lease behind HTTP.
#include "controller/kube/leader_election.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/unit/controller/kube/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Answers GET, POST and PUT as the API server would, resourceVersions included.
class LeaseStore {
 public:
  void serve(ScriptedConnection& connection, const ScriptedRequest& request) {
    const std::lock_guard lock(mutex_);
    if (broken) return connection.answer(500, status_text(500, "InternalError"));
    if (request.method == "GET") {
      if (lease.is_null()) return connection.answer(404, status_text(404, "NotFound"));
      return connection.answer(200, lease.dump());
    }
    Json body = Json::parse(request.body);
    const bool create = request.method == "POST";
    if (create && !lease.is_null()) {
      return connection.answer(409, status_text(409, "AlreadyExists"));
    }
    if (!create && body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]) {
      return connection.answer(409, status_text(409, "Conflict"));
    }
    body["metadata"]["resourceVersion"] = std::to_string(++version);
    lease = body;
    connection.answer(create ? 201 : 200, lease.dump());
  }
  std::string holder() const {
    const std::lock_guard lock(mutex_);
    return lease.is_null() ? "" : decode_lease(lease).holder;
  }
  std::atomic<bool> broken = false;

 private:
  mutable std::mutex mutex_;
  Json lease;
  int version = 0;
};

// What an elector told its manager.
struct Manager {
  bool permitted_at_the_end = false;  // the guard of the last term, when that was over
  std::mutex mutex;
  std::condition_variable changed;
  bool leading = false;
  std::vector<std::shared_ptr<const WriteGuard>> guards;  // one a term
  std::vector<std::string> holders;

  ElectionCallbacks callbacks() {
    return {[this](std::shared_ptr<const WriteGuard> given) {
              const std::lock_guard lock(mutex);
              guards.push_back(std::move(given));
              leading = true;
              changed.notify_all();
            },
            [this] {
              const std::lock_guard lock(mutex);
              leading = false;
              permitted_at_the_end = guards.back()->permits(monotonic_now());
              changed.notify_all();
            },
            [this](const std::string& holder) {
              const std::lock_guard lock(mutex);
              holders.push_back(holder);
            }};
  }
  template <typename Condition>
  bool await(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), condition);
  }
  bool await_terms(std::size_t count) {
    return await([this, count] { return guards.size() >= count; });
  }
  bool await_following() {
    return await([this] { return !leading; });
  }
};

// Tries often; a term itself lasts long enough for a busy machine.
ElectionOptions quick(const std::string& identity) {
  ElectionOptions options;
  options.namespace_name = "ns";
  options.lease_name = "tilewright";
  options.elector.identity = identity;
  options.elector.retry_period = milliseconds(20);
  options.jitter = [] { return 0.0; };
  return options;
}

class LeaderElectionTest : public ::testing::Test {
 protected:
  LeaseStore store;
  ScriptedServer server{
      [this](auto& connection, const auto& request) { store.serve(connection, request); }};
  std::unique_ptr<Client> client = client_for(server);
};

TEST_F(LeaderElectionTest, LeadsRenewsAndReleases) {
  Manager manager;
  LeaderElection election(*client, quick("me"), manager.callbacks(), make_silent_logger());
  election.start();
  ASSERT_TRUE(manager.await_terms(1));
  EXPECT_EQ(store.holder(), "me");
  const auto guard = manager.guards[0];
  const MonotonicTime first = guard->valid_until();
  ASSERT_TRUE(server.await_requests(6)) << "it renews";
  EXPECT_GT(guard->valid_until(), first);
  election.stop();
  EXPECT_FALSE(manager.leading);
  EXPECT_TRUE(manager.permitted_at_the_end) << "what waited may still be written";
  EXPECT_FALSE(guard->permits(monotonic_now()));
  EXPECT_EQ(store.holder(), "") << "given up, so that nobody need wait";
  EXPECT_EQ(manager.holders.front(), "me");
}

TEST_F(LeaderElectionTest, PassesFromOneToTheNext) {
  Manager first_manager, second_manager;
  LeaderElection first(*client, quick("first"), first_manager.callbacks(), make_silent_logger());
  LeaderElection second(*client, quick("second"), second_manager.callbacks(), make_silent_logger());
  first.start();
  ASSERT_TRUE(first_manager.await_terms(1));
  second.start();
  ASSERT_TRUE(server.await_requests(server.requests().size() + 5));
  EXPECT_EQ(store.holder(), "first");
  first.stop();
  ASSERT_TRUE(second_manager.await_terms(1));
  EXPECT_EQ(store.holder(), "second");
}

TEST_F(LeaderElectionTest, StopsWhenItCannotRenewAndComesBackInANewTerm) {
  Manager manager;
  ElectionOptions options = quick("me");
  options.elector.renew_deadline = milliseconds(500);
  LeaderElection election(*client, options, manager.callbacks(), make_silent_logger());
  election.start();
  ASSERT_TRUE(manager.await_terms(1));
  store.broken = true;
  ASSERT_TRUE(manager.await_following());
  const std::size_t terms = manager.guards.size();
  EXPECT_FALSE(manager.guards.back()->permits(monotonic_now()));
  store.broken = false;
  ASSERT_TRUE(manager.await_terms(terms + 1));
  election.stop();
  for (const auto& guard : manager.guards) {
    EXPECT_FALSE(guard->permits(monotonic_now())) << "an old term's guard stays closed";
  }
}

}  // namespace
}  // namespace tilewright::kube
