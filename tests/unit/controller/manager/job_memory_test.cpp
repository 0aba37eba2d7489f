// What the leader remembers until its caches show it: statuses, pods created, pods deleted.
#include "controller/manager/job_memory.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "controller/api/encode.h"
#include "controller/manager/reconciler.h"

namespace tilewright::manager {
namespace {

using nlohmann::json;
using reconcile::Worker;
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

// As the cache shows it: an old status at a version.
json cached_at(const std::string& version) {
  return {{"metadata", {{"resourceVersion", version}}},
          {"status", api::to_json(status(api::Phase::kPending, 0))}};
}

void write(JobMemory& memory, const std::string& upon, const std::string& version,
           const api::TrainJobStatus& written) {
  if (!memory.written) memory.written.emplace();
  memory.written->upon_versions.insert(upon);
  memory.written->version = version;
  memory.written->status = json::to_cbor(api::to_json(written));
}

TEST(JobMemory, AStatusOfOursHoldsWhileTheCacheShowsWhatItWasWrittenUpon) {
  JobMemory memory;
  write(memory, "5", "6", status(api::Phase::kRunning, 1));
  json cached = cached_at("5");
  bring_up_to_date(cached, memory);
  EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kRunning, 1)));
  EXPECT_EQ(cached["metadata"]["resourceVersion"], "6") << "the next write is made upon this one";
  EXPECT_TRUE(memory.written);
}

TEST(JobMemory, OfSeveralWritesInARowTheLastHoldsWhicheverTheCacheShows) {
  for (const char* shown : {"5", "6", "7"}) {
    JobMemory memory;
    write(memory, "5", "6", status(api::Phase::kRunning, 0));
    write(memory, "6", "7", status(api::Phase::kRestarting, 1));
    write(memory, "7", "9", status(api::Phase::kRunning, 1));
    json cached = cached_at(shown);
    bring_up_to_date(cached, memory);
    EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kRunning, 1))) << shown;
    EXPECT_EQ(cached["metadata"]["resourceVersion"], "9") << shown;
  }
}

TEST(JobMemory, WhatTheCacheShowsOtherwiseIsNewer) {
  // "8" is somebody else's write, between two of ours or after them.
  for (const char* shown : {"7", "8"}) {
    JobMemory memory;
    write(memory, "5", "6", status(api::Phase::kRunning, 0));
    write(memory, "6", "7", status(api::Phase::kRunning, 1));
    json cached = cached_at(shown);
    cached["status"] = api::to_json(status(api::Phase::kFailed, 4));
    bring_up_to_date(cached, memory);
    EXPECT_EQ(cached["status"], api::to_json(status(api::Phase::kFailed, 4))) << shown;
    EXPECT_EQ(cached["metadata"]["resourceVersion"], shown);
    EXPECT_FALSE(memory.written) << shown;
  }
}

api::TrainJob seen_at(const std::string& version, const api::TrainJobStatus& as) {
  api::TrainJob job;
  job.metadata.resource_version = version;
  job.status = as;
  return job;
}

TEST(JobMemory, OfSeveralStatusesInDoubtTheOneThatStandsThereWasWritten) {
  JobMemory memory;
  const reconcile::Event first{false, "Running", "since noon"};
  const reconcile::Event second{false, "Running", "a second later"};
  remember_doubtful({"5", status(api::Phase::kRunning, 0), {first}}, memory);
  remember_doubtful({"5", status(api::Phase::kRunning, 1), {second}}, memory);
  const auto seen = [&](const char* version, std::int64_t restarts) {
    return settle_doubtful(seen_at(version, status(api::Phase::kRunning, restarts)), memory);
  };
  EXPECT_THAT(seen("5", 1), IsEmpty()) << "nothing has been written upon 5 yet";
  EXPECT_THAT(seen("6", 1), ElementsAre(second));
  EXPECT_THAT(seen("7", 0), IsEmpty()) << "upon one version there is one write";
}

TEST(JobMemory, KeepsNoStatusInDoubtThatNobodyWouldBeToldOfAndNotTooMany) {
  JobMemory memory;
  remember_doubtful({"5", status(api::Phase::kRunning, 0), {}}, memory);
  EXPECT_THAT(memory.doubtful, IsEmpty());
  const auto count = static_cast<std::int64_t>(kMostDoubtful) + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    remember_doubtful({"5", status(api::Phase::kRunning, i), {{false, "Running", "now"}}}, memory);
  }
  EXPECT_EQ(memory.doubtful.size(), kMostDoubtful);
  EXPECT_EQ(memory.doubtful.back().status.restarts.program, count - 1);
}

TEST(JobMemory, APodThatWasCreatedIsThereBeforeTheCacheShowsIt) {
  JobMemory memory;
  memory.created["b"] = {worker(1, "b"), kNow};
  memory.created["a"] = {worker(0, "a"), kNow};
  EXPECT_THAT(uids(merge_pods({}, memory)), ElementsAre("a", "b"));
  EXPECT_THAT(uids(merge_pods({worker(2, "c")}, memory)), ElementsAre("a", "b", "c"));
}

TEST(JobMemory, TheCachesWordOnACreatedPodCounts) {
  JobMemory memory;
  memory.created["a"] = {worker(0, "a"), kNow};
  Worker running = worker(0, "a");
  running.phase = reconcile::WorkerPhase::kRunning;
  const auto merged = merge_pods({running}, memory);
  ASSERT_THAT(uids(merged), ElementsAre("a"));
  EXPECT_EQ(merged[0].phase, reconcile::WorkerPhase::kRunning);
  forget_seen({running}, kNow, memory);
  EXPECT_THAT(memory.created, IsEmpty());
}

TEST(JobMemory, ADeletedPodIsTerminatingBeforeTheCacheShowsIt) {
  JobMemory memory;
  memory.deleted["a"] = {false, kNow};
  const auto merged = merge_pods({worker(0, "a"), worker(1, "b")}, memory);
  ASSERT_THAT(uids(merged), ElementsAre("a", "b"));
  EXPECT_TRUE(merged[0].terminating);
  EXPECT_FALSE(merged[1].terminating);
}

TEST(JobMemory, APodDeletedByForceIsGoneThoughItsSuccessorIsThere) {
  JobMemory memory;
  memory.deleted["a"] = {true, kNow};
  memory.created["a2"] = {worker(0, "a2"), kNow};
  EXPECT_THAT(uids(merge_pods({worker(0, "a")}, memory)), ElementsAre("a2"));
}

TEST(JobMemory, ForgetsADeletionOnceTheCacheShowsIt) {
  JobMemory memory;
  for (const char* uid : {"a", "b", "c", "d"}) memory.deleted[uid] = {false, kNow};
  memory.deleted["d"].gone = true;
  Worker terminating = worker(0, "a");
  terminating.terminating = true;
  Worker forced = worker(3, "d");
  forced.terminating = true;
  // a terminates, b is as it was, c is not there any more, d only terminates though it is gone.
  forget_seen({terminating, worker(1, "b"), forced}, kNow, memory);
  EXPECT_THAT(memory.deleted, ElementsAre(Key("b"), Key("d")));
}

TEST(JobMemory, KeepsTheDeletionOfAPodThatTheCacheHasNotShownYet) {
  JobMemory memory;
  memory.created["a"] = {worker(0, "a"), kNow};
  memory.deleted["a"] = {true, kNow};
  forget_seen({}, kNow, memory);
  EXPECT_THAT(uids(merge_pods({}, memory)), IsEmpty()) << "created and deleted: it is not there";
  // Late, its creation shows, then its end.
  forget_seen({worker(0, "a")}, kNow, memory);
  EXPECT_THAT(uids(merge_pods({worker(0, "a")}, memory)), IsEmpty());
  forget_seen({}, kNow, memory);
  EXPECT_THAT(memory.created, IsEmpty());
  EXPECT_THAT(memory.deleted, IsEmpty());
}

TEST(JobMemory, ForgetsWhatNoCacheHasShownForLong) {
  JobMemory memory;
  memory.created["a"] = {worker(0, "a"), kNow};
  memory.deleted["b"] = {true, kNow};
  forget_seen({worker(1, "b")}, kNow + kMemorySpan, memory);
  EXPECT_EQ(memory.created.size() + memory.deleted.size(), 2U);
  forget_seen({worker(1, "b")}, kNow + kMemorySpan + seconds(1), memory);
  EXPECT_EQ(memory.created.size() + memory.deleted.size(), 0U);
}

}  // namespace
}  // namespace tilewright::manager
