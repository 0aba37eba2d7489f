// Tests of JobExpectations: written statuses, created pods and deleted pods that the caches lack.
#include "controller/operator/job_expectations.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "controller/api/encode.h"
#include "controller/operator/reconciler.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using policy::Worker;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;

constexpr MonotonicTime kNow{std::chrono::hours(1)};

Worker worker(int index, const std::string& uid) {
  Worker made;
  made.index = index;
  made.uid = uid;
  made.name = "mrpc-worker-" + std::to_string(index);
  return made;
}

std::vector<std::string> uids(const std::vector<Worker>& workers) {
  std::vector<std::string> result;
  result.reserve(workers.size());
  for (const Worker& each : workers) result.push_back(each.uid);
  return result;
}

api::TrainJobStatus status(api::Phase phase, std::int64_t program_restarts) {
  api::TrainJobStatus made;
  made.phase = phase;
  made.restarts.program = program_restarts;
  return made;
}

// A cached job with an old status at the given version.
json cached_at(const std::string& version) {
  return {{"metadata", {{"resourceVersion", version}}},
          {"status", api::to_json(status(api::Phase::kPending, 0))}};
}

void write(JobExpectations& expectations, const std::string& base, const std::string& version,
           const api::TrainJobStatus& written) {
  if (!expectations.written) expectations.written.emplace();
  expectations.written->base_versions.insert(base);
  expectations.written->version = version;
  expectations.written->status = json::to_cbor(api::to_json(written));
}

TEST(JobExpectations, AWrittenStatusOverridesTheVersionItWasBasedOn) {
  JobExpectations expectations;
  write(expectations, "5", "6", status(api::Phase::kRunning, 1));
  json cached = cached_at("5");
  overlay_written_status(cached, expectations);
  EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kRunning, 1)));
  EXPECT_EQ(cached["metadata"]["resourceVersion"], "6")
      << "the next write is based on this version";
  EXPECT_TRUE(expectations.written);
}

TEST(JobExpectations, TheLastOfSeveralWritesOverridesEveryEarlierVersion) {
  for (const char* shown : {"5", "6", "7"}) {
    JobExpectations expectations;
    write(expectations, "5", "6", status(api::Phase::kRunning, 0));
    write(expectations, "6", "7", status(api::Phase::kRestarting, 1));
    write(expectations, "7", "9", status(api::Phase::kRunning, 1));
    json cached = cached_at(shown);
    overlay_written_status(cached, expectations);
    EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kRunning, 1))) << shown;
    EXPECT_EQ(cached["metadata"]["resourceVersion"], "9") << shown;
  }
}

TEST(JobExpectations, AnyOtherCachedVersionIsNewer) {
  // "8" is a write of another client, between or after the writes of the leader.
  for (const char* shown : {"7", "8"}) {
    JobExpectations expectations;
    write(expectations, "5", "6", status(api::Phase::kRunning, 0));
    write(expectations, "6", "7", status(api::Phase::kRunning, 1));
    json cached = cached_at(shown);
    cached["status"] = api::to_json(status(api::Phase::kFailed, 4));
    overlay_written_status(cached, expectations);
    EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kFailed, 4))) << shown;
    EXPECT_EQ(cached["metadata"]["resourceVersion"], shown);
    EXPECT_FALSE(expectations.written) << shown;
  }
}

api::TrainJob seen_at(const std::string& version, const api::TrainJobStatus& as) {
  api::TrainJob job;
  job.metadata.resource_version = version;
  job.status = as;
  return job;
}

TEST(JobExpectations, ResolvesUnknownOutcomesByTheObservedStatus) {
  JobExpectations expectations;
  const policy::Event first{false, "Running", "since noon"};
  const policy::Event second{false, "Running", "a second later"};
  add_unknown_outcome({"5", status(api::Phase::kRunning, 0), {first}}, expectations);
  add_unknown_outcome({"5", status(api::Phase::kRunning, 1), {second}}, expectations);
  const auto seen = [&](const char* version, std::int64_t restarts) {
    return resolve_unknown_outcomes(seen_at(version, status(api::Phase::kRunning, restarts)),
                                    expectations);
  };
  EXPECT_THAT(seen("5", 1), IsEmpty()) << "no write based on 5 yet";
  EXPECT_THAT(seen("6", 1), ElementsAre(second));
  EXPECT_THAT(seen("7", 0), IsEmpty()) << "at most one write per base version";
}

TEST(JobExpectations, DropsUnknownOutcomesWithoutEventsAndBoundsTheirNumber) {
  JobExpectations expectations;
  add_unknown_outcome({"5", status(api::Phase::kRunning, 0), {}}, expectations);
  EXPECT_THAT(expectations.unknown_outcomes, IsEmpty());
  const auto count = static_cast<std::int64_t>(kMaxUnknownOutcomes) + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    add_unknown_outcome({"5", status(api::Phase::kRunning, i), {{false, "Running", "now"}}},
                        expectations);
  }
  EXPECT_EQ(expectations.unknown_outcomes.size(), kMaxUnknownOutcomes);
  EXPECT_EQ(expectations.unknown_outcomes.back().status.restarts.program, count - 1);
}

TEST(JobExpectations, ACreatedPodIsVisibleBeforeTheCacheShowsIt) {
  JobExpectations expectations;
  expectations.created["b"] = {worker(1, "b"), kNow};
  expectations.created["a"] = {worker(0, "a"), kNow};
  EXPECT_THAT(uids(merge_pods({}, expectations)), ElementsAre("a", "b"));
  EXPECT_THAT(uids(merge_pods({worker(2, "c")}, expectations)), ElementsAre("a", "b", "c"));
}

TEST(JobExpectations, ACachedPodReplacesTheExpectedOne) {
  JobExpectations expectations;
  expectations.created["a"] = {worker(0, "a"), kNow};
  Worker running = worker(0, "a");
  running.phase = policy::WorkerPhase::kRunning;
  const auto merged = merge_pods({running}, expectations);
  ASSERT_THAT(uids(merged), ElementsAre("a"));
  EXPECT_EQ(merged[0].phase, policy::WorkerPhase::kRunning);
  drop_observed({running}, kNow, expectations);
  EXPECT_THAT(expectations.created, IsEmpty());
}

TEST(JobExpectations, ADeletedPodIsTerminatingBeforeTheCacheShowsIt) {
  JobExpectations expectations;
  expectations.deleted["a"] = {false, kNow};
  const auto merged = merge_pods({worker(0, "a"), worker(1, "b")}, expectations);
  ASSERT_THAT(uids(merged), ElementsAre("a", "b"));
  EXPECT_TRUE(merged[0].terminating);
  EXPECT_FALSE(merged[1].terminating);
}

TEST(JobExpectations, AForceDeletedPodIsGoneWhileItsSuccessorExists) {
  JobExpectations expectations;
  expectations.deleted["a"] = {true, kNow};
  expectations.created["a2"] = {worker(0, "a2"), kNow};
  EXPECT_THAT(uids(merge_pods({worker(0, "a")}, expectations)), ElementsAre("a2"));
}

TEST(JobExpectations, DropsADeletionOnceTheCacheShowsIt) {
  JobExpectations expectations;
  for (const char* uid : {"a", "b", "c", "d"}) expectations.deleted[uid] = {false, kNow};
  expectations.deleted["d"].gone = true;
  Worker terminating = worker(0, "a");
  terminating.terminating = true;
  Worker forced = worker(3, "d");
  forced.terminating = true;
  // a is terminating, b is unchanged, c is gone, d is only terminating although force-deleted.
  drop_observed({terminating, worker(1, "b"), forced}, kNow, expectations);
  EXPECT_THAT(expectations.deleted, ElementsAre(Key("b"), Key("d")));
}

TEST(JobExpectations, KeepsTheDeletionOfAPodThatTheCacheHasNotShownYet) {
  JobExpectations expectations;
  expectations.created["a"] = {worker(0, "a"), kNow};
  expectations.deleted["a"] = {true, kNow};
  drop_observed({}, kNow, expectations);
  EXPECT_THAT(uids(merge_pods({}, expectations)), IsEmpty()) << "created and deleted";
  // The cache shows the creation late, then the deletion.
  drop_observed({worker(0, "a")}, kNow, expectations);
  EXPECT_THAT(uids(merge_pods({worker(0, "a")}, expectations)), IsEmpty());
  drop_observed({}, kNow, expectations);
  EXPECT_THAT(expectations.created, IsEmpty());
  EXPECT_THAT(expectations.deleted, IsEmpty());
}

TEST(JobExpectations, DropsExpectationsAfterTheTimeout) {
  JobExpectations expectations;
  expectations.created["a"] = {worker(0, "a"), kNow};
  expectations.deleted["b"] = {true, kNow};
  drop_observed({worker(1, "b")}, kNow + kExpectationTimeout, expectations);
  EXPECT_EQ(expectations.created.size() + expectations.deleted.size(), 2U);
  drop_observed({worker(1, "b")}, kNow + kExpectationTimeout + seconds(1), expectations);
  EXPECT_EQ(expectations.created.size() + expectations.deleted.size(), 0U);
}

}  // namespace
}  // namespace tilewright::controller
