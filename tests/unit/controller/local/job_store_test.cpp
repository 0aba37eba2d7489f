// The state folder of a job.
#include "controller/local/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "controller/api/defaults.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class JobStoreTest : public ::testing::Test {
 protected:
  static api::TrainJob job(const std::string& name) {
    api::TrainJob made;
    (name.ends_with('-') ? made.metadata.generate_name : made.metadata.name) = name;
    made.spec.trainer.task = "mrpc";
    made.spec.worker.replicas = 2;
    api::apply_defaults(made);
    return made;
  }
  fs::path state() const { return folder_.path() / "state"; }
  void end(api::TrainJob& ended, api::Phase phase) const {
    const JobStore store = JobStore::open(state(), ended, false).or_throw();
    ended.status.phase = phase;
    ASSERT_TRUE(store.save(ended).ok());
  }
  testing::TemporaryDirectory folder_;
};

TEST_F(JobStoreTest, BeginsANewJob) {
  api::TrainJob made = job("mrpc");
  const JobStore store = JobStore::open(state(), made, false).or_throw();
  EXPECT_FALSE(store.resumed());
  EXPECT_THAT(made.metadata.uid,
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_EQ(made.metadata.generation, 1);
  EXPECT_TRUE(made.metadata.creation_timestamp);
  EXPECT_TRUE(fs::is_directory(store.log_folder()));
  EXPECT_EQ(fs::file_size(store.key_file()), 64U);
  EXPECT_EQ(fs::status(store.key_file()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(JobStoreTest, GivesGeneratedNamesThatDiffer) {
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    api::TrainJob made = job("run-");
    ASSERT_TRUE(JobStore::open(state(), made, false).ok());
    EXPECT_THAT(made.metadata.name, MatchesRegex("run-[bcdfghjklmnpqrstvwxz2-9]{5}"));
    names.insert(made.metadata.name);
  }
  EXPECT_EQ(names.size(), 5U);
}

TEST_F(JobStoreTest, TakesAnUnfinishedJobUp) {
  api::TrainJob first = job("mrpc");
  end(first, api::Phase::kSuspended);
  api::TrainJob second = job("mrpc");
  {
    const JobStore store = JobStore::open(state(), second, false).or_throw();
    EXPECT_TRUE(store.resumed());
    EXPECT_EQ(second.metadata.uid, first.metadata.uid);
    EXPECT_EQ(second.metadata.generation, 1) << "the same spec";
    EXPECT_EQ(second.status.phase, api::Phase::kSuspended);
  }
  api::TrainJob third = job("mrpc");
  third.spec.run_policy.active_deadline_seconds = 60;
  ASSERT_TRUE(JobStore::open(state(), third, false).ok());
  EXPECT_EQ(third.metadata.uid, first.metadata.uid);
  EXPECT_EQ(third.metadata.generation, 2) << "another spec";
}

TEST_F(JobStoreTest, RefusesAFinishedJobUnlessItIsReplaced) {
  api::TrainJob first = job("mrpc");
  end(first, api::Phase::kFailed);
  api::TrainJob second = job("mrpc");
  const auto refused = JobStore::open(state(), second, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("job mrpc has already failed"));
  std::ofstream(state() / "mrpc/logs/mrpc-worker-0.log") << "old\n";
  ASSERT_TRUE(JobStore::open(state(), second, true).ok());
  EXPECT_NE(second.metadata.uid, first.metadata.uid);
  EXPECT_EQ(second.status.phase, api::Phase::kPending);
  EXPECT_FALSE(fs::exists(state() / "mrpc/logs/mrpc-worker-0.log"));
}

TEST_F(JobStoreTest, IsOneUpsAtATime) {
  api::TrainJob first = job("mrpc");
  const JobStore held = JobStore::open(state(), first, false).or_throw();
  api::TrainJob second = job("mrpc");
  const auto refused = JobStore::open(state(), second, true);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another `tilewright up`"));
}

TEST_F(JobStoreTest, NamesAFileThatIsDamaged) {
  api::TrainJob made = job("mrpc");
  ASSERT_TRUE(JobStore::open(state(), made, false).ok());
  for (const char* damage : {"", "{", "[]", R"({"metadata": {"name": 3}})"}) {
    std::ofstream(state() / "mrpc/job.json") << damage;
    const auto store = JobStore::open(state(), made, false);
    ASSERT_FALSE(store) << damage;
    EXPECT_EQ(store.error().code, ExitCode::kManifest);
    EXPECT_THAT(store.error().message, HasSubstr("mrpc/job.json is damaged"));
  }
  EXPECT_TRUE(JobStore::open(state(), made, true).ok());
}

TEST_F(JobStoreTest, NamesAFolderThatCannotBeMade) {
  std::ofstream(state()) << "a file";
  api::TrainJob made = job("mrpc");
  const auto store = JobStore::open(state(), made, false);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ExitCode::kOutput);
  EXPECT_THAT(store.error().message, HasSubstr(state().string()));
}

}  // namespace
}  // namespace tilewright::local
