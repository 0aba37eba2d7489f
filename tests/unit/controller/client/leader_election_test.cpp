// Tests of LeaderElection with an HTTP server that stores one Lease.
#include "controller/client/leader_election.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/support/silent_logger.h"
#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::make_silent_logger;

// Handles GET, POST and PUT like the API server, including resourceVersions.
class LeaseStore {
 public:
  void serve(ScriptedConnection& connection, const ScriptedRequest& request) {
    const std::lock_guard lock(mutex_);
    if (broken) return connection.answer(500, status_text(500, "InternalError"));
    if (request.method == "GET") {
      if (lease_.is_null()) return connection.answer(404, status_text(404, "NotFound"));
      return connection.answer(200, lease_.dump());
    }
    Json body = Json::parse(request.body);
    const bool create = request.method == "POST";
    if (create && !lease_.is_null()) {
      return connection.answer(409, status_text(409, "AlreadyExists"));
    }
    if (!create && body["metadata"]["resourceVersion"] != lease_["metadata"]["resourceVersion"]) {
      return connection.answer(409, status_text(409, "Conflict"));
    }
    body["metadata"]["resourceVersion"] = std::to_string(++version_);
    lease_ = body;
    connection.answer(create ? 201 : 200, lease_.dump());
  }
  std::string holder() const {
    const std::lock_guard lock(mutex_);
    return lease_.is_null() ? "" : decode_lease(lease_).holder;
  }
  std::atomic<bool> broken = false;

 private:
  mutable std::mutex mutex_;
  Json lease_;
  int version_ = 0;
};

// The callbacks of one LeaderElection.
struct CallbackRecorder {
  bool permitted_when_stopped = false;  // state of the guard when the last session ended
  std::mutex mutex;
  std::condition_variable changed;
  bool leading = false;
  std::vector<std::shared_ptr<const WriteGuard>> guards;  // one per session
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
              permitted_when_stopped = guards.back()->permits(monotonic_now());
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
  bool await_sessions(std::size_t count) {
    return await([this, count] { return guards.size() >= count; });
  }
  bool await_stopped() {
    return await([this] { return !leading; });
  }
};

// Short retry period; the lease is long enough for a busy machine.
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
  CallbackRecorder recorder;
  LeaderElection election(*client, quick("me"), recorder.callbacks(), make_silent_logger());
  election.start();
  ASSERT_TRUE(recorder.await_sessions(1));
  EXPECT_EQ(store.holder(), "me");
  const auto guard = recorder.guards[0];
  const MonotonicTime first = guard->valid_until();
  // A renewal is sent after the answer to the one before.
  ASSERT_TRUE(server.await_requests(server.requests().size() + 2)) << "renews";
  EXPECT_GT(guard->valid_until(), first);
  election.stop();
  EXPECT_FALSE(recorder.leading);
  EXPECT_TRUE(recorder.permitted_when_stopped) << "pending writes are still permitted";
  EXPECT_FALSE(guard->permits(monotonic_now()));
  EXPECT_EQ(store.holder(), "") << "released";
  EXPECT_EQ(recorder.holders.front(), "me");
}

TEST_F(LeaderElectionTest, PassesLeadershipToTheNextReplica) {
  CallbackRecorder first_recorder, second_recorder;
  LeaderElection first(*client, quick("first"), first_recorder.callbacks(), make_silent_logger());
  LeaderElection second(*client, quick("second"), second_recorder.callbacks(),
                        make_silent_logger());
  first.start();
  ASSERT_TRUE(first_recorder.await_sessions(1));
  second.start();
  ASSERT_TRUE(server.await_requests(server.requests().size() + 5));
  EXPECT_EQ(store.holder(), "first");
  first.stop();
  ASSERT_TRUE(second_recorder.await_sessions(1));
  EXPECT_EQ(store.holder(), "second");
}

TEST_F(LeaderElectionTest, StopsWhenItCannotRenewAndLeadsAgainInANewSession) {
  CallbackRecorder recorder;
  ElectionOptions options = quick("me");
  options.elector.renew_deadline = milliseconds(500);
  LeaderElection election(*client, options, recorder.callbacks(), make_silent_logger());
  election.start();
  ASSERT_TRUE(recorder.await_sessions(1));
  store.broken = true;
  ASSERT_TRUE(recorder.await_stopped());
  const std::size_t sessions = recorder.guards.size();
  EXPECT_FALSE(recorder.guards.back()->permits(monotonic_now()));
  store.broken = false;
  ASSERT_TRUE(recorder.await_sessions(sessions + 1));
  election.stop();
  for (const auto& guard : recorder.guards) {
    EXPECT_FALSE(guard->permits(monotonic_now()))
        << "the guard of an earlier session permits no writes";
  }
}

}  // namespace
}  // namespace tilewright::kube
