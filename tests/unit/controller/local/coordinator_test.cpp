// The coordinator of `up` with real rendezvous clients.
#include "controller/local/coordinator.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "common/rendezvous/client.h"
#include "tests/support/paths.h"
#include "tests/support/silent_logger.h"

namespace tilewright::local {
namespace {

using std::chrono::seconds;
using tilewright::testing::make_silent_logger;

constexpr const char* kUid = "11111111-2222-4333-8444-555555555555";

std::unique_ptr<rendezvous::Client> make_member(const Coordinator& coordinator,
                                                const net::SecretKey& key, int index,
                                                Duration heartbeat_interval = seconds(1)) {
  rendezvous::Client::Options options;
  options.coordinator = net::parse_address(coordinator.endpoint()).or_throw();
  options.job_uid = kUid;
  options.process.worker_index = index;
  options.address = "127.0.0.1:1";
  options.isas = {"ref"};
  options.heartbeat_interval = heartbeat_interval;
  return std::make_unique<rendezvous::Client>(std::move(options), key.clone(),
                                              make_silent_logger());
}

TEST(Coordinator, FormsAnEpochAndReportsProgress) {
  const net::SecretKey key = net::SecretKey::random();
  const auto coordinator =
      serve_rendezvous({kUid, 32}, key.clone(), make_silent_logger()).or_throw();
  EXPECT_FALSE(coordinator->progress()) << "before the first expect()";
  ASSERT_TRUE(coordinator->expect({1, 2, 2, seconds(30)}).ok());
  ASSERT_TRUE(coordinator->expect({1, 2, 2, seconds(30)}).ok()) << "expect() is idempotent";

  const auto zero = make_member(*coordinator, key, 0);
  const auto one = make_member(*coordinator, key, 1);
  const MonotonicTime deadline = monotonic_now() + seconds(30);
  std::thread other([&] { ASSERT_TRUE(one->join(-1, deadline).ok()); });
  const auto assignment = zero->join(-1, deadline);
  other.join();
  ASSERT_TRUE(assignment.ok()) << assignment.error().message;
  EXPECT_EQ(assignment->world, 2);

  rendezvous::Progress report;
  report.step = 10;
  report.total_steps = 20;
  report.loss = 0.5;
  report.examples_per_second = 64;
  report.last_checkpoint_step = 8;
  report.phase = "training";
  report.metrics = {{"eval_accuracy", 0.75},
                    {"gflops", 300},
                    {"peak_gflops", 900},
                    {"eta_seconds", 5},
                    {"grad_norm", 1},
                    {"failed_checkpoints", 2},
                    {"checkpoint_wait_seconds", 3}};
  (assignment->rank == 0 ? zero : one)->report(report);
  std::optional<policy::RendezvousView> live;
  do {
    pollfd polled{coordinator->changes_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 30'000), 1);
    coordinator->take_changes();
    live = coordinator->progress();
    ASSERT_TRUE(live);
    ASSERT_LT(monotonic_now(), deadline);
  } while (live->progress.step != 10);
  EXPECT_EQ(live->epoch, 1U);
  EXPECT_EQ(live->world, 2);
  EXPECT_EQ(live->progress.loss, 0.5);
  EXPECT_EQ(live->eta_seconds, 5) << "10 steps of 32 examples at 64 examples/s";
  EXPECT_EQ(live->progress.last_checkpoint_step, 8);
  EXPECT_EQ(live->progress.metrics, (std::map<std::string, double>{{"eval_accuracy", 0.75}}));
  EXPECT_EQ(live->gflops_per_second, 300);
  EXPECT_EQ(live->peak_gflops, 900);
  EXPECT_EQ(live->members.size(), 2U);

  coordinator->close();
  EXPECT_FALSE(coordinator->progress());
  ASSERT_TRUE(coordinator->expect({1, 1, 1, seconds(30)}).ok()) << "after close()";
  const auto later = make_member(*coordinator, key, 0);
  const auto again = later->join(-1, monotonic_now() + seconds(30));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->resume_step, 8);
}

TEST(Coordinator, KnowsTheCheckpointInTheJobsStatus) {
  const net::SecretKey key = net::SecretKey::random();
  const auto coordinator =
      serve_rendezvous({kUid, 32, false, 3, 12}, key.clone(), make_silent_logger()).or_throw();
  ASSERT_TRUE(coordinator->expect({1, 1, 1, seconds(30)}).ok());
  const auto member = make_member(*coordinator, key, 0);
  const auto assignment = member->join(-1, monotonic_now() + seconds(30));
  ASSERT_TRUE(assignment.ok()) << assignment.error().message;
  EXPECT_EQ(assignment->resume_step, 12);
}

TEST(Coordinator, TheExitOfAWorkerEndsTheEpoch) {
  const net::SecretKey key = net::SecretKey::random();
  const auto coordinator =
      serve_rendezvous({kUid, 32}, key.clone(), make_silent_logger()).or_throw();
  ASSERT_TRUE(coordinator->expect({2, 2, 2, seconds(30)}).ok());
  const auto zero = make_member(*coordinator, key, 0);
  auto one = make_member(*coordinator, key, 1);
  const MonotonicTime deadline = monotonic_now() + seconds(30);
  std::thread other([&] { ASSERT_TRUE(one->join(-1, deadline).ok()); });
  ASSERT_TRUE(zero->join(-1, deadline).ok());
  other.join();
  one.reset();
  coordinator->worker_exited(1);
  ASSERT_EQ(net::wait_ready(zero->epoch_cancel_token().fd(), POLLIN, deadline), net::Ready::kYes);
  EXPECT_NE(zero->reason().find("worker 1 was lost"), std::string::npos) << zero->reason();
}

TEST(Coordinator, AWorkerIsLostAfterTheJobsHeartbeatTimeout) {
  const net::SecretKey key = net::SecretKey::random();
  CoordinatorOptions options{kUid, 32};
  options.heartbeat_timeout = std::chrono::milliseconds(200);
  const auto coordinator =
      serve_rendezvous(std::move(options), key.clone(), make_silent_logger()).or_throw();
  ASSERT_TRUE(coordinator->expect({1, 1, 1, seconds(30)}).ok());
  const auto frozen = make_member(*coordinator, key, 0, std::chrono::hours(1));
  const MonotonicTime deadline = monotonic_now() + seconds(30);
  ASSERT_TRUE(frozen->join(-1, deadline).ok());
  ASSERT_EQ(net::wait_ready(frozen->epoch_cancel_token().fd(), POLLIN, deadline), net::Ready::kYes);
  EXPECT_NE(frozen->reason().find("no heartbeat for 0.2 s"), std::string::npos) << frozen->reason();
}

TEST(Coordinator, FormsAnEpochAtALoweredMinimum) {
  const net::SecretKey key = net::SecretKey::random();
  const auto coordinator =
      serve_rendezvous({kUid, 32}, key.clone(), make_silent_logger()).or_throw();
  ASSERT_TRUE(coordinator->expect({2, 2, 2, seconds(0)}).ok());
  ASSERT_TRUE(coordinator->expect({1, 2, 1, seconds(0)}).ok());
  const auto only = make_member(*coordinator, key, 0);
  const auto assignment = only->join(-1, monotonic_now() + seconds(30));
  ASSERT_TRUE(assignment.ok()) << assignment.error().message;
  EXPECT_EQ(assignment->world, 1);
}

// Forms an epoch with one member and returns its number.
std::uint64_t epoch_of(Coordinator& coordinator, const net::SecretKey& key) {
  EXPECT_TRUE(coordinator.expect({1, 1, 1, seconds(30)}).ok());
  const auto member = make_member(coordinator, key, 0);
  const auto assignment = member->join(-1, monotonic_now() + seconds(30));
  EXPECT_TRUE(assignment.ok()) << assignment.error().message;
  coordinator.close();
  return assignment->epoch;
}

TEST(Coordinator, NeverReusesAnEpochNumber) {
  const net::SecretKey key = net::SecretKey::random();
  const auto serve = [&](rendezvous::Epoch min_epoch) {
    return serve_rendezvous({kUid, 32, false, min_epoch}, key.clone(), make_silent_logger())
        .or_throw();
  };
  const auto first = serve(0);
  EXPECT_EQ(epoch_of(*first, key), 1U);
  EXPECT_EQ(epoch_of(*first, key), 2U) << "after close() and expect()";
  EXPECT_EQ(epoch_of(*serve(2), key), 3U)
      << "after a restart of `up`, with the epoch of the status";
}

}  // namespace
}  // namespace tilewright::local
